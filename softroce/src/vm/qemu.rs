//! QEMU: its command line and its process.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::accel::Accel;
use crate::{Error, child, kernel::BootFiles, protocol::PORT_NAME};

/// The program for this architecture.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Everything that QEMU's command line depends on.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    /// The program.
    pub(crate) program: &'a Path,
    /// How instructions are executed.
    pub(crate) accel: Accel,
    /// Processors.
    pub(crate) cpus: u32,
    /// Memory.
    pub(crate) memory_mib: u32,
    /// Kernel and first file system.
    pub(crate) boot: &'a BootFiles,
    /// Writable folders.
    pub(crate) shares: &'a [PathBuf],
    /// Whether the kernel's messages are wanted.
    pub(crate) verbose: bool,
}

/// The kernel's command line. What each word saves was measured under emulation: see the README.
fn kernel_line(verbose: bool) -> String {
    let level = if verbose {
        "loglevel=7"
    } else {
        "quiet loglevel=1"
    };
    format!(
        "console=ttyS0 {level} panic=-1 rdinit=/init nokaslr no5lvl mitigations=off cryptomgr.notests no_timer_check tsc=reliable \
         rcupdate.rcu_expedited=1 random.trust_cpu=on module.sig_enforce=0 8250.nr_uarts=1 net.ifnames=0"
    )
}

impl Machine<'_> {
    /// QEMU's arguments.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
        let (accel, cpu) = match self.accel {
            Accel::Kvm => ("kvm", "host"),
            // All processors on threads of their own.
            Accel::Tcg => ("tcg,thread=multi", "max"),
        };
        add("-name", "softroce".into());
        add("-machine", "pc,hpet=off,usb=off,vmport=off".into());
        add("-accel", accel.into());
        add("-cpu", cpu.into());
        add("-smp", self.cpus.to_string().into());
        add("-m", self.memory_mib.to_string().into());
        add("-kernel", self.boot.kernel.clone().into());
        add("-initrd", self.boot.initrd.clone().into());
        add("-append", kernel_line(self.verbose).into());
        // The console, which is silent but for a panic, goes where QEMU's own complaints go.
        add("-chardev", "file,id=console,path=/proc/self/fd/2".into());
        add("-serial", "chardev:console".into());
        add("-chardev", "stdio,id=port,signal=off".into());
        add("-device", "virtio-serial-pci,max_ports=2".into());
        add(
            "-device",
            format!("virtserialport,chardev=port,name={PORT_NAME}").into(),
        );
        add("-virtfs", share("root", Path::new("/"), ",readonly=on"));
        for (index, folder) in self.shares.iter().enumerate() {
            add("-virtfs", share(&share_tag(index), folder, ""));
        }
        arguments.extend(
            [
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ]
            .map(OsString::from),
        );
        arguments
    }

    /// Starts QEMU. It dies with this process, whatever ends that.
    pub(crate) fn start(&self) -> Result<Child, Error> {
        let mut command = Command::new(self.program);
        command
            .args(self.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        child::bind(&mut command).spawn().map_err(|error| {
            Error::NotStarted(format!("cannot run {}: {error}", self.program.display()))
        })
    }
}

/// The mount tag of the share with that index.
pub(crate) fn share_tag(index: usize) -> String {
    format!("share{index}")
}

fn share(tag: &str, path: &Path, more: &str) -> OsString {
    let mut option = OsString::from("local,path=");
    option.push(escaped(path.as_os_str()));
    option.push(format!(
        ",mount_tag={tag},security_model=none,multidevs=remap{more}"
    ));
    option
}

/// A comma in a value is written twice.
fn escaped(value: &OsStr) -> OsString {
    let bytes = value.as_bytes().iter().flat_map(|byte| {
        if *byte == b',' {
            vec![b',', b',']
        } else {
            vec![*byte]
        }
    });
    OsString::from_vec(bytes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_files_are_on_the_command_line() {
        let boot = BootFiles {
            kernel: "/k".into(),
            initrd: "/i".into(),
        };
        let shares = ["/a,b".into()];
        let machine = Machine {
            program: Path::new("qemu"),
            accel: Accel::Tcg,
            cpus: 3,
            memory_mib: 512,
            boot: &boot,
            shares: &shares,
            verbose: false,
        };
        let line = machine
            .arguments()
            .join(OsStr::new(" "))
            .into_string()
            .unwrap();
        assert!(
            line.contains("-smp 3 -m 512 -kernel /k -initrd /i"),
            "{line}"
        );
        assert!(line.contains("-accel tcg,thread=multi -cpu max"), "{line}");
        assert!(
            line.contains(
                "local,path=/,mount_tag=root,security_model=none,multidevs=remap,readonly=on"
            ),
            "{line}"
        );
        assert!(
            line.contains("local,path=/a,,b,mount_tag=share0,security_model=none,multidevs=remap "),
            "{line}"
        );
        let line = Machine {
            accel: Accel::Kvm,
            ..machine
        }
        .arguments()
        .join(OsStr::new(" "))
        .into_string()
        .unwrap();
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
    }

    #[test]
    fn the_kernel_is_silent_unless_asked() {
        assert!(kernel_line(false).contains("quiet loglevel=1 panic=-1"));
        assert!(kernel_line(true).contains("loglevel=7") && !kernel_line(true).contains("quiet"));
    }
}
