//! What the two ends of the virtual serial port say to each other.
//!
//! The program on the machine and the guest's init (`init/main.rs`, which includes this file) exchange frames: one byte of kind, four bytes of
//! length (little-endian), the payload. One ordered stream carries everything, so that output keeps its order and the
//! exit status cannot overtake it. Standard input has credit: the host may have [`STDIN_WINDOW`] bytes on the way,
//! so that a command that reads nothing never blocks a signal.

use std::io::{self, Read, Write};

/// The name of the virtual serial port.
pub(crate) const PORT_NAME: &str = "softroce";

/// How many bytes of standard input may be on the way to the command.
pub(crate) const STDIN_WINDOW: usize = 256 * 1024;

/// The largest payload of a frame.
pub(crate) const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Guest: the init runs. No payload.
    Hello = 1,
    /// Guest: the devices and the root are there, the command is about to start. No payload.
    Ready = 2,
    /// Guest: bytes of standard output.
    Stdout = 3,
    /// Guest: bytes of standard error.
    Stderr = 4,
    /// Guest: so many bytes of standard input (u32) have been taken by the command.
    Credit = 5,
    /// Guest: the command has ended; an i32, the status to exit with.
    Exit = 6,
    /// Guest: the machine could not be set up, or the command not be started; an i32 and a text.
    Failed = 7,
    /// Host: what to run, a [`Job`].
    Start = 32,
    /// Host: bytes of standard input.
    Stdin = 33,
    /// Host: the end of standard input.
    StdinEnd = 34,
    /// Host: a signal (i32) for the command's process group.
    Signal = 35,
    /// Host: the terminal's size, rows and columns (two u16).
    Resize = 36,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Hello,
        Self::Ready,
        Self::Stdout,
        Self::Stderr,
        Self::Credit,
        Self::Exit,
        Self::Failed,
        Self::Start,
        Self::Stdin,
        Self::StdinEnd,
        Self::Signal,
        Self::Resize,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Writes one frame with a single write where the writer allows it.
pub(crate) fn write_frame(to: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|_| payload.len() <= MAX_PAYLOAD)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "frame too long"))?;
    let mut frame = Vec::with_capacity(5 + payload.len());
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one frame; `None` at the end of the stream between two frames.
pub(crate) fn read_frame(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; 5];
    loop {
        match from.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    from.read_exact(&mut head[1..])?;
    let kind =
        Kind::from_byte(head[0]).ok_or_else(|| invalid(format!("unknown frame {}", head[0])))?;
    let [_, a, b, c, d] = head;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > MAX_PAYLOAD {
        return Err(invalid(format!("frame of {length} bytes")));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Some((kind, payload)))
}

/// Reads an i32 at the start of a payload.
pub(crate) fn leading_i32(payload: &[u8]) -> Option<i32> {
    payload
        .first_chunk()
        .map(|bytes| i32::from_le_bytes(*bytes))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// What the guest is to run, and with what around it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// The command and its arguments.
    pub(crate) argv: Vec<Vec<u8>>,
    /// The whole environment, `KEY=VALUE` each.
    pub(crate) env: Vec<Vec<u8>>,
    /// The current folder.
    pub(crate) current_dir: Vec<u8>,
    /// Writable 9p shares: mount tag and path, alternating.
    pub(crate) shares: Vec<Vec<u8>>,
    /// The folder, in the machine's file system, that is to appear as `/lib/modules/VERSION`; empty for none.
    pub(crate) module_tree: Vec<u8>,
    /// Rows and columns when the command gets a terminal, else zero.
    pub(crate) terminal: (u16, u16),
}

impl Job {
    /// Encodes the job as a payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for list in [&self.argv, &self.env, &self.shares] {
            put_len(&mut bytes, list.len());
            list.iter().for_each(|item| put(&mut bytes, item));
        }
        put(&mut bytes, &self.current_dir);
        put(&mut bytes, &self.module_tree);
        bytes.extend_from_slice(&self.terminal.0.to_le_bytes());
        bytes.extend_from_slice(&self.terminal.1.to_le_bytes());
        bytes
    }

    /// Decodes a payload; `None` when it is damaged.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let job = Self {
            argv: take_list(from)?,
            env: take_list(from)?,
            shares: take_list(from)?,
            current_dir: take(from)?,
            module_tree: take(from)?,
            terminal: (
                u16::from_le_bytes(take_array(from)?),
                u16::from_le_bytes(take_array(from)?),
            ),
        };
        from.is_empty().then_some(job)
    }
}

fn put_len(to: &mut Vec<u8>, length: usize) {
    to.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn put(to: &mut Vec<u8>, item: &[u8]) {
    put_len(to, item.len());
    to.extend_from_slice(item);
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*head)
}

fn take(from: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(u32::from_le_bytes(take_array(from)?)).ok()?;
    let (head, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(head.to_vec())
}

fn take_list(from: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    let count = u32::from_le_bytes(take_array(from)?);
    (0..count).map(|_| take(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_went() {
        let mut wire = Vec::new();
        write_frame(&mut wire, Kind::Stdout, b"a\0\r\n\xff").unwrap();
        write_frame(&mut wire, Kind::StdinEnd, b"").unwrap();
        assert_eq!(wire.len(), 5 + 5 + 5);
        let mut from = wire.as_slice();
        assert_eq!(
            read_frame(&mut from).unwrap(),
            Some((Kind::Stdout, b"a\0\r\n\xff".to_vec()))
        );
        assert_eq!(
            read_frame(&mut from).unwrap(),
            Some((Kind::StdinEnd, Vec::new()))
        );
        assert_eq!(read_frame(&mut from).unwrap(), None);
    }

    #[test]
    fn a_cut_or_damaged_frame_is_an_error() {
        let mut wire = Vec::new();
        write_frame(&mut wire, Kind::Exit, &7i32.to_le_bytes()).unwrap();
        assert!(read_frame(&mut &wire[..wire.len() - 1]).is_err());
        wire[0] = 200;
        assert!(read_frame(&mut wire.as_slice()).is_err());
        assert!(read_frame(&mut [Kind::Stdout as u8, 255, 255, 255, 255].as_slice()).is_err());
    }

    #[test]
    fn every_kind_is_known_by_its_byte() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_byte(kind as u8), Some(kind));
        }
        assert_eq!(Kind::from_byte(0), None);
    }

    #[test]
    fn a_job_comes_back_as_it_went() {
        let job = Job {
            argv: vec![b"sh".to_vec(), b"-c".to_vec(), b"exit \xff".to_vec()],
            env: vec![b"A=1".to_vec()],
            current_dir: b"/tmp".to_vec(),
            shares: vec![],
            module_tree: b"/cache/lib/modules/6.1".to_vec(),
            terminal: (24, 80),
        };
        let bytes = job.encode();
        assert_eq!(Job::decode(&bytes), Some(job));
        assert_eq!(Job::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Job::decode(&[bytes.as_slice(), b"x"].concat()), None);
    }

    #[test]
    fn a_status_is_read_from_the_start_of_a_payload() {
        assert_eq!(leading_i32(b"\x7f\0\0\0text"), Some(127));
        assert_eq!(leading_i32(b"\x7f\0"), None);
    }
}
