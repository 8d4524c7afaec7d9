//! Copies a file into another process's memory, piece by piece, and from there to its disk.
//!
//! The receiver exposes places for a few pieces. The sender writes each piece with its length as immediate data, which completes
//! a receive there; an empty message says that the place is free again. At the end both compare length and checksum.
//!
//! Usage: `stream_file receive ADDR[:PORT] FILE`, and elsewhere `stream_file send ADDR[:PORT] FILE`.

mod common;

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use common::link::{self, End};
use crc32fast::Hasher;
use indicatif::{ProgressBar, ProgressStyle};
use rdmacm::{Access, ConnParam, Inline, Work};

/// Bytes of a piece.
const PIECE: u32 = 64 << 10;
/// Places for pieces.
const PLACES: u32 = 16;
/// Messages under way in one direction: one for each place, and the last, which is a text. The same once more for those whose
/// completion is late.
const DEPTH: u32 = 2 * (PLACES + 1);
const TEXT: usize = 64;

/// Copies a file over RDMA.
#[derive(Parser)]
struct Args {
    side: Side,
    /// The receiver's address, one of a device.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// What to send, or where to put what comes.
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    Receive,
    Send,
}

fn main() -> ExitCode {
    let args = Args::parse();
    common::report(match args.side {
        Side::Receive => receive(&args),
        Side::Send => send(&args),
    })
}

fn receive(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut file = File::create(&args.file)?;
    let (_listener, channel) = link::listen(args.addr)?;
    let request = link::request(&channel)?;
    let mut end = End::new(&request.context()?, DEPTH, TEXT, |pd, init| {
        request.create_qp(pd, init)
    })?;
    let memory = end.pd.expose((PLACES * PIECE) as usize, Access::WRITE)?;
    let where_it_is = memory.remote().to_bytes();
    let id = request.accept_with(&ConnParam::new().private_data(&where_it_is[..]))?;

    let (mut hasher, mut pieces, mut bytes) = (Hasher::new(), 0_usize, [0; PIECE as usize]);
    let theirs = loop {
        let Some((size, buf)) = end.next(&channel)? else {
            continue;
        };
        let Some(size) = size else {
            break buf.to_vec();
        };
        let piece = bytes.get_mut(..size as usize).ok_or("a piece too long")?;
        memory.read_at(pieces % PLACES as usize * PIECE as usize, piece);
        end.qp.recv.post(buf, 0)?;
        end.qp.send.post(Work::send(), Inline(&[]), 0)?;
        hasher.update(piece);
        file.write_all(piece)?;
        pieces += 1;
    };
    let ours = sum(file.metadata()?.len(), hasher);
    let mut answer = end.pool.take().ok_or("no buffer is free")?;
    answer.fill_from(ours.as_bytes());
    end.qp.send.send(answer, 0)?;
    link::ended(&channel, &id)?;
    end.close()?;
    compare(&ours, &theirs)
}

fn send(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut file = File::open(&args.file)?;
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left")?;
    let bar = ProgressBar::new(file.metadata()?.len()).with_style(style);
    let (id, channel) = link::resolve(args.addr)?;
    let context = id.context()?;
    let mut end = End::new(&context, DEPTH, TEXT, |pd, init| id.create_qp(pd, init))?;
    let pool = end.pd.pool(DEPTH as usize, PIECE as usize)?;
    id.connect(ConnParam::new())?;
    let memory = link::memory_told(&link::established(&channel)?);

    let (mut hasher, mut pieces, mut free, mut at_end) = (Hasher::new(), 0, PLACES, false);
    let theirs = loop {
        while !at_end && free > 0 {
            let Some(mut buf) = pool.take() else { break };
            let size = file.read(&mut buf)?;
            buf.set_len(size);
            if size == 0 {
                at_end = true;
                buf.fill_from(sum(bar.position(), hasher.clone()).as_bytes());
                end.qp.send.send(buf, 0)?;
                continue;
            }
            hasher.update(&buf);
            let place = memory
                .part(pieces % PLACES * PIECE, PIECE)
                .ok_or("too small")?;
            let imm = u32::try_from(size)?;
            end.qp.send.write_with_imm(buf, place, imm, 0)?;
            (pieces, free) = (pieces + 1, free - 1);
            bar.inc(size as u64);
        }
        let Some((_, buf)) = end.next(&channel)? else {
            continue;
        };
        if !buf.is_empty() {
            break buf.to_vec();
        }
        end.qp.recv.post(buf, 0)?;
        free += 1;
    };
    bar.finish();
    id.disconnect()?;
    end.close()?;
    compare(&sum(bar.position(), hasher), &theirs)
}

/// The last message.
fn sum(len: u64, hasher: Hasher) -> String {
    format!("{len} bytes, CRC-32 {:08x}", hasher.finalize())
}

fn compare(ours: &str, theirs: &[u8]) -> Result<(), Box<dyn Error>> {
    println!("{ours}");
    let same = ours.as_bytes() == theirs;
    same.then_some(())
        .ok_or("the other side has other bytes".into())
}
