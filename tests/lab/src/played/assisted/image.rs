//! A small, real ISO 9660 image: volume descriptors, path tables, a root directory and two files.
//!
//! `INFRAENV.TXT` names the InfraEnv that the image was made for. A played guest reads it, as a real agent finds its
//! service in the ignition. `IGNITION.IMG` is filler, which may contain a different token for each download.

use super::super::options::ImageOptions;

/// Bytes of one logical block.
const SECTOR: usize = 2048;
/// Offset of the first volume descriptor. `CD001` follows one byte later.
const DESCRIPTOR: usize = 16 * SECTOR;
const TERMINATOR: usize = 17;
const PATH_TABLE_LITTLE: u32 = 18;
const PATH_TABLE_BIG: u32 = 19;
const ROOT: u32 = 20;
const MARKER: u32 = 21;
const IGNITION: u32 = 22;
const PATH_TABLE_LENGTH: u32 = 10;
/// Smallest image: descriptors, directory, marker and one block of ignition, rounded up.
const SMALLEST: usize = 128 << 10;
const MARKER_PREFIX: &str = "agent-forge-lab infraenv ";

/// Size of an image in bytes.
#[must_use]
pub fn size(options: &ImageOptions) -> usize {
    options.size.max(SMALLEST).div_ceil(SECTOR) * SECTOR
}

/// The first bytes of the image of the InfraEnv `namespace`/`name`. After them there are only zeros, so a large image
/// costs no more memory. `token` is written into the ignition file.
#[must_use]
pub fn head(options: &ImageOptions, namespace: &str, name: &str, token: &str) -> Vec<u8> {
    let whole = size(options);
    let sectors = whole / SECTOR;
    let mut image = vec![0; SMALLEST];
    let marker = format!("{MARKER_PREFIX}{namespace}/{name}\n");
    let files = [
        Entry {
            name: b"IGNITION.IMG;1",
            block: IGNITION,
            size: narrow(whole) - IGNITION * narrow(SECTOR),
        },
        Entry {
            name: b"INFRAENV.TXT;1",
            block: MARKER,
            size: narrow(marker.len()),
        },
    ];
    primary_descriptor(&mut image[DESCRIPTOR..DESCRIPTOR + SECTOR], narrow(sectors));
    put(&mut image, TERMINATOR * SECTOR, b"\xffCD001\x01");
    put(
        &mut image,
        at(PATH_TABLE_LITTLE),
        &path_table(u32::to_le_bytes, u16::to_le_bytes),
    );
    put(
        &mut image,
        at(PATH_TABLE_BIG),
        &path_table(u32::to_be_bytes, u16::to_be_bytes),
    );
    let mut directory = Vec::new();
    for name in [&[0_u8][..], &[1]] {
        directory.extend(record(
            &Entry {
                name,
                block: ROOT,
                size: narrow(SECTOR),
            },
            true,
        ));
    }
    for file in &files {
        directory.extend(record(file, false));
    }
    put(&mut image, at(ROOT), &directory);
    put(&mut image, at(MARKER), marker.as_bytes());
    put(
        &mut image,
        at(IGNITION),
        format!("{{\"token\":\"{token}\"}}\n").as_bytes(),
    );
    image
}

/// Whether the bytes begin like an ISO 9660 image.
#[must_use]
pub fn is_iso(image: &[u8]) -> bool {
    image.get(DESCRIPTOR..DESCRIPTOR + 6) == Some(b"\x01CD001")
}

/// The InfraEnv that an image was made for, as `(namespace, name)`; `None` if it is not an image of this server.
#[must_use]
pub fn infra_env(image: &[u8]) -> Option<(String, String)> {
    let text = image.get(at(MARKER)..at(MARKER) + SECTOR)?;
    let line = text.split(|byte| *byte == b'\n').next()?;
    let named = std::str::from_utf8(line)
        .ok()?
        .strip_prefix(MARKER_PREFIX)?;
    let (namespace, name) = named.split_once('/')?;
    is_iso(image).then(|| (namespace.to_owned(), name.to_owned()))
}

/// How many bytes of an image must be read to find its InfraEnv.
#[must_use]
pub fn head_length() -> usize {
    at(IGNITION)
}

struct Entry<'a> {
    name: &'a [u8],
    block: u32,
    size: u32,
}

fn at(block: u32) -> usize {
    block as usize * SECTOR
}

/// Image sizes are far below 4 GiB. A larger size is set to the format's maximum.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn put(image: &mut [u8], offset: usize, bytes: &[u8]) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// A number in both byte orders, as the format requires.
fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn both16(number: u16) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn record(entry: &Entry<'_>, directory: bool) -> Vec<u8> {
    let length = 33 + entry.name.len() + usize::from(entry.name.len().is_multiple_of(2));
    let mut record = vec![0; length];
    record[0] = u8::try_from(length).unwrap_or(u8::MAX);
    put(&mut record, 2, &both32(entry.block));
    put(&mut record, 10, &both32(entry.size));
    // 1 January 2026, midnight, UTC: fixed, so that equal inputs give equal bytes.
    put(&mut record, 18, &[126, 1, 1, 0, 0, 0, 0]);
    record[25] = if directory { 2 } else { 0 };
    put(&mut record, 28, &both16(1));
    record[32] = u8::try_from(entry.name.len()).unwrap_or(u8::MAX);
    put(&mut record, 33, entry.name);
    record
}

fn path_table(long: fn(u32) -> [u8; 4], short: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let mut table = vec![1, 0];
    table.extend(long(ROOT));
    table.extend(short(1));
    table.extend([0, 0]);
    table
}

fn primary_descriptor(sector: &mut [u8], sectors: u32) {
    put(sector, 0, b"\x01CD001\x01");
    let mut text = |offset: usize, length: usize, value: &str| {
        let field = &mut sector[offset..offset + length];
        field.fill(b' ');
        field[..value.len()].copy_from_slice(value.as_bytes());
    };
    text(8, 32, "LINUX");
    text(40, 32, "DISCOVERY");
    for (offset, length) in [
        (190, 128),
        (318, 128),
        (446, 128),
        (574, 128),
        (702, 37),
        (739, 37),
        (776, 37),
    ] {
        text(offset, length, "");
    }
    for (offset, value) in [
        (813, "2026010100000000"),
        (830, "2026010100000000"),
        (847, "0000000000000000"),
    ] {
        text(offset, 16, value);
    }
    text(864, 16, "0000000000000000");
    put(sector, 80, &both32(sectors));
    put(sector, 120, &both16(1));
    put(sector, 124, &both16(1));
    put(sector, 128, &both16(2048));
    put(sector, 132, &both32(PATH_TABLE_LENGTH));
    put(sector, 140, &PATH_TABLE_LITTLE.to_le_bytes());
    put(sector, 148, &PATH_TABLE_BIG.to_be_bytes());
    put(
        sector,
        156,
        &record(
            &Entry {
                name: &[0],
                block: ROOT,
                size: narrow(SECTOR),
            },
            true,
        ),
    );
    for offset in [829, 846, 863, 880] {
        // Time zone, in quarters of an hour from UTC.
        sector[offset] = 0;
    }
    sector[881] = 1;
}
