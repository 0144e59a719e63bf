//! Decoders for streams that gzip, zstd or xz have compressed. All are written in Rust, because
//! their input is not trusted.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, Read};

/// The largest window of a stream in bytes. A decoder keeps a window of earlier bytes in memory.
const WINDOW_MAX: u64 = 128 << 20;

/// The format of a compressed stream that can be unpacked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
    Xz,
}

impl Coding {
    /// Returns the format of a stream whose first six bytes are `first`, by its magic number.
    /// Returns `None` for any other format.
    pub(crate) fn of_first(first: [u8; 6]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Some(Self::Xz),
            _ => None,
        }
    }

    /// Returns a reader of the unpacked bytes of `packed`, a stream in this format. Several streams
    /// in a row are read as one. Reads nothing yet. Reading fails if `packed` is malformed or ends
    /// too early, or if a zstd or xz stream needs more than 128 MiB of memory. It does not limit
    /// the number of unpacked bytes.
    pub(crate) fn reader<'a>(self, packed: impl BufRead + 'a) -> Box<dyn Read + 'a> {
        match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Self::Zstd => Box::new(Zstd::new(packed)),
            Self::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
                packed,
                true,
                u32::try_from(WINDOW_MAX >> 10).expect("a constant"),
            )),
        }
    }
}

/// A reader of a zstd stream, which consists of any number of frames. A frame yields no bytes
/// before a whole window of it, or all of it, is unpacked.
struct Zstd<R> {
    packed: R,
    decoder: FrameDecoder,
    position: StreamPosition,
}

/// The position of the decoder in the stream.
#[derive(Copy, Clone, PartialEq, Eq)]
enum StreamPosition {
    /// Before the header of a frame, or at the end of the stream.
    Between,
    /// In a frame. The reader has returned `given` unpacked bytes of the frame.
    Within { given: u64 },
    /// After an error. Every further read fails.
    Broken,
}

impl<R: BufRead> Zstd<R> {
    fn new(packed: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self {
            packed,
            decoder,
            position: StreamPosition::Between,
        }
    }

    /// Reads the header of the next frame. Returns `false` at the end of the stream. A skippable
    /// frame, which holds a user's own data, is skipped, and the result is `true`. Fails if the
    /// header is malformed or the stream ends too early.
    fn enter(&mut self) -> io::Result<bool> {
        if self.packed.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.packed) {
            Ok(()) => self.position = StreamPosition::Within { given: 0 },
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = u64::from(length);
                let passed = io::copy(&mut (&mut self.packed).take(length), &mut io::sink())?;
                if passed < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }

    /// Ends the current frame after its last byte. `given` is the number of bytes that were read
    /// from it.
    ///
    /// # Errors
    /// If the frame's header states another number of bytes, or the checksum does not match.
    fn leave(&mut self, given: u64) -> io::Result<()> {
        self.position = StreamPosition::Between;
        // 0 also means that the header does not state the number.
        let size = self.decoder.content_size();
        if size != 0 && size != given {
            return Err(io::Error::other(format!(
                "{given} bytes come of a frame of {size}"
            )));
        }
        let said = self.decoder.get_checksum_from_data();
        if said.is_some() && said != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("its checksum is wrong"));
        }
        Ok(())
    }

    /// Unpacks bytes into `to`, which must not be empty. Returns their number, or 0 at the end of
    /// the stream. Fails if the stream is malformed.
    fn next(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // The loop ends, because each turn reads a part of the stream or returns.
        loop {
            match self.position {
                StreamPosition::Broken => return Err(io::ErrorKind::InvalidData.into()),
                StreamPosition::Between => {
                    if !self.enter()? {
                        return Ok(0);
                    }
                }
                StreamPosition::Within { given } if self.decoder.can_collect() > 0 => {
                    let count = self.decoder.read(to)?;
                    let given = given + count as u64;
                    self.position = StreamPosition::Within { given };
                    return Ok(count);
                }
                StreamPosition::Within { given } if self.decoder.is_finished() => {
                    self.leave(given)?
                }
                StreamPosition::Within { .. } => {
                    self.decoder
                        .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1))
                        .map_err(io::Error::other)?;
                }
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        let result = self.next(to);
        if result.is_err() {
            self.position = StreamPosition::Broken;
        }
        result
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// Compresses `plain` with zstd and returns the stream.
    pub(crate) fn zstd(plain: &[u8]) -> Vec<u8> {
        compress_to_vec(plain, CompressionLevel::Fastest)
    }

    /// Returns a zstd frame that unpacks to at least `count` zeroes and is 32,000 times smaller.
    pub(crate) fn zstd_zeroes(count: u64) -> Vec<u8> {
        // The header has no length and no checksum. The window is 128 KiB.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
        // Each block is one byte and a count of its repetitions.
        let block = |last: u32| {
            let [low, middle, high, _] = (last | 1 << 1 | (128 << 10) << 3).to_le_bytes();
            [low, middle, high, 0]
        };
        for _ in 0..count / (128 << 10) {
            frame.extend(block(0));
        }
        frame.extend(block(1));
        frame
    }

    /// Returns a frame that holds `plain` uncompressed and states a window of 128 MiB.
    pub(crate) fn zstd_stored(plain: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3];
        for part in plain.chunks(128 << 10) {
            let header = u32::try_from(part.len()).unwrap() << 3;
            frame.extend(&header.to_le_bytes()[..3]);
            frame.extend(part);
        }
        // The last block is empty.
        frame.extend([1, 0, 0]);
        frame
    }

    fn read(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        let mut reader = Coding::Zstd.reader(packed);
        reader.read_to_end(&mut plain)?;
        assert_eq!(reader.read(&mut [0; 9])?, 0, "the end is the end");
        Ok(plain)
    }

    /// The output of Debian's `zstd -19 --check` for `FOX` repeated forty times.
    #[rustfmt::skip]
    const CHECKED: [u8; 68] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x64, 0x08, 0x06, 0xb5, 0x01, 0x00, 0xd4, 0x02,
        0x54, 0x68, 0x65, 0x20, 0x71, 0x75, 0x69, 0x63, 0x6b, 0x20, 0x62, 0x72,
        0x6f, 0x77, 0x6e, 0x20, 0x66, 0x6f, 0x78, 0x20, 0x6a, 0x75, 0x6d, 0x70,
        0x73, 0x20, 0x6f, 0x76, 0x65, 0x72, 0x20, 0x74, 0x68, 0x65, 0x20, 0x6c,
        0x61, 0x7a, 0x79, 0x20, 0x64, 0x6f, 0x67, 0x2e, 0x0a, 0x01, 0x00, 0xc5,
        0x16, 0xfe, 0xaa, 0x0c, 0xdb, 0xe8, 0x69, 0xc4,
    ];
    const FOX: &[u8] = b"The quick brown fox jumps over the lazy dog.\n";
    /// A skippable frame: its magic number, its length, and two bytes.
    const SKIPPED: [u8; 10] = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];

    #[test]
    fn frames_after_one_another_are_one_stream() {
        let fox = FOX.repeat(40);
        assert_eq!(read(&CHECKED).unwrap(), fox);
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        let packed = [&zstd(&large), &SKIPPED[..], &CHECKED, &zstd(b""), &SKIPPED].concat();
        assert_eq!(read(&packed).unwrap(), [large, fox].concat());
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn each_changed_byte_is_an_error_or_changes_nothing() {
        let fox = FOX.repeat(40);
        for position in 0..CHECKED.len() {
            for bit in 0..8 {
                let mut changed = CHECKED;
                changed[position] ^= 1 << bit;
                if let Ok(plain) = read(&changed) {
                    // Without its flag, the checksum's bytes are read as a frame and are malformed.
                    // A skippable frame has nothing to unpack.
                    assert!(
                        plain == fox || plain.is_empty(),
                        "bit {bit} of byte {position}"
                    );
                }
            }
        }
    }

    #[test]
    fn after_an_error_there_is_nothing_more() {
        let mut changed = CHECKED;
        changed[66] ^= 1;
        let mut reader = Coding::Zstd.reader(&changed[..]);
        reader.read_to_end(&mut Vec::new()).unwrap_err();
        reader.read(&mut [0; 9]).unwrap_err();
        // Byte 5 is the number of bytes. A wrong number is found even without a checksum.
        let mut changed = CHECKED[..CHECKED.len() - 4].to_vec();
        (changed[4], changed[5]) = (0x60, changed[5] ^ 1);
        let error = read(&changed).unwrap_err();
        assert!(error.to_string().contains("1800 bytes"), "{error}");
    }

    #[test]
    fn a_stream_without_its_end_is_an_error() {
        let whole = [&SKIPPED[..], &CHECKED].concat();
        for length in (1..whole.len()).filter(|&length| length != SKIPPED.len()) {
            read(&whole[..length]).unwrap_err();
        }
    }

    #[test]
    fn a_frame_of_one_byte_many_times_is_read() {
        let plain = read(&zstd_zeroes(1 << 20)).unwrap();
        assert!(plain.len() == (1 << 20) + (128 << 10) && plain.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_window_of_more_than_128_mib_is_refused_before_it_is_taken() {
        // A header with a window of 2^31 bytes.
        let error = read(&[0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0]).unwrap_err();
        assert!(error.to_string().contains("2147483648"), "{error}");
    }
}
