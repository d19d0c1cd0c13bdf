//! Content-Encoding undone for the recording: gzip, deflate and zstd, piece by piece.
//!
//! What went over the wire stays encoded; this sees the copy only, on the observer's thread.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};
use zstd::stream::write::Decoder as ZstdDecoder;

/// So much is decoded between two looks at the limit.
const STEP_BYTES: usize = 16 * 1024;

/// Undoes one body's encoding.
pub(super) struct ContentDecoder {
    coding: Coding,
    decoded_bytes: u64,
    limit_bytes: u64,
}

enum Coding {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// `deflate` means zlib, and some send raw deflate: the first byte tells.
    DeflateOfEitherKind,
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
    Zstd(Box<ZstdDecoder<'static, Vec<u8>>>),
}

impl ContentDecoder {
    /// A decoder for a body with these headers, that refuses to grow it beyond the limit. The error
    /// says which encoding is not read.
    pub(super) fn new(headers: &HeaderMap, limit_bytes: u64) -> Result<Self, String> {
        let mut codings = headers
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.to_str().unwrap_or("unreadable").split(','))
            .map(|coding| coding.trim().to_ascii_lowercase())
            .filter(|coding| !coding.is_empty() && coding != "identity");
        let coding = match (codings.next(), codings.next()) {
            (None, _) => Coding::Identity,
            (Some(coding), None) if coding == "gzip" || coding == "x-gzip" => {
                Coding::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))
            }
            (Some(coding), None) if coding == "deflate" => Coding::DeflateOfEitherKind,
            (Some(coding), None) if coding == "zstd" => {
                let decoder = ZstdDecoder::new(Vec::new());
                Coding::Zstd(Box::new(decoder.map_err(|error| format!("no zstd: {error}"))?))
            }
            (Some(coding), None) => return Err(format!("content encoding `{coding}` is not read")),
            (Some(_), Some(_)) => return Err("several content encodings are not read".to_owned()),
        };
        Ok(Self { coding, decoded_bytes: 0, limit_bytes })
    }

    /// What the next piece decodes to, as far as it goes.
    pub(super) fn feed<'a>(&mut self, piece: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        if let (Coding::DeflateOfEitherKind, Some(first)) = (&self.coding, piece.first()) {
            self.coding = if first & 0x0f == 8 && first >> 4 <= 7 {
                Coding::Zlib(Box::new(ZlibDecoder::new(Vec::new())))
            } else {
                Coding::Deflate(Box::new(DeflateDecoder::new(Vec::new())))
            };
        }
        match &mut self.coding {
            Coding::Identity | Coding::DeflateOfEitherKind => return Ok(Cow::Borrowed(piece)),
            _ => {}
        }
        let mut decoded = Vec::new();
        for step in piece.chunks(STEP_BYTES) {
            let new = self.step(step).map_err(|error| format!("body does not decode: {error}"))?;
            self.decoded_bytes += new.len() as u64;
            if self.decoded_bytes > self.limit_bytes {
                return Err(format!("body decodes to more than {} bytes", self.limit_bytes));
            }
            decoded.extend_from_slice(&new);
        }
        Ok(Cow::Owned(decoded))
    }

    fn step(&mut self, step: &[u8]) -> io::Result<Vec<u8>> {
        fn through<W: Write>(writer: &mut W, step: &[u8]) -> io::Result<()> {
            writer.write_all(step)?;
            writer.flush()
        }
        let decoded = match &mut self.coding {
            Coding::Gzip(decoder) => {
                through(decoder, step)?;
                decoder.get_mut()
            }
            Coding::Zlib(decoder) => {
                through(decoder, step)?;
                decoder.get_mut()
            }
            Coding::Deflate(decoder) => {
                through(decoder, step)?;
                decoder.get_mut()
            }
            Coding::Zstd(decoder) => {
                through(decoder, step)?;
                decoder.get_mut()
            }
            Coding::Identity | Coding::DeflateOfEitherKind => return Ok(step.to_vec()),
        };
        Ok(std::mem::take(decoded))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;

    fn headers(coding: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap())])
    }

    /// Feeds `wire` in pieces of every small size and expects `text` each time.
    fn check(coding: &str, wire: &[u8], text: &[u8]) {
        for size in [1, 2, 7, wire.len().max(1)] {
            let mut decoder = ContentDecoder::new(&headers(coding), 1 << 20).unwrap();
            let mut found = Vec::new();
            for piece in wire.chunks(size) {
                found.extend_from_slice(&decoder.feed(piece).unwrap());
            }
            assert_eq!(found, text, "{coding} in pieces of {size}");
        }
    }

    #[test]
    fn known_encodings_are_undone() {
        let text = b"data: one\n\ndata: two\n\n".repeat(50);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&text).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(&text).unwrap();
        check("gzip", &gzip, &text);
        check("x-gzip, identity", &gzip, &text);
        check("deflate", &zlib.finish().unwrap(), &text);
        check("deflate", &deflate.finish().unwrap(), &text);
        check("zstd", &zstd::encode_all(text.as_slice(), 3).unwrap(), &text);
        check("identity", &text, &text);
        check("", &text, &text);
        check("gzip", b"", b"");
    }

    #[test]
    fn a_flushed_event_comes_out_before_the_next_is_compressed() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut decoder = ContentDecoder::new(&headers("gzip"), 1 << 20).unwrap();
        for event in [b"data: one\n\n".as_slice(), b"data: two\n\n"] {
            gzip.write_all(event).unwrap();
            gzip.flush().unwrap();
            let wire = std::mem::take(gzip.get_mut());
            assert_eq!(decoder.feed(&wire).unwrap().as_ref(), event);
        }
    }

    #[test]
    fn what_is_not_read_says_so() {
        for (coding, part) in [("br", "`br`"), ("gzip, br", "several")] {
            let error = ContentDecoder::new(&headers(coding), 1).err().unwrap();
            assert!(error.contains(part), "{error}");
        }
        let mut broken = ContentDecoder::new(&headers("gzip"), 1 << 20).unwrap();
        assert!(broken.feed(b"this is no gzip at all").is_err());
        let mut broken = ContentDecoder::new(&headers("zstd"), 1 << 20).unwrap();
        assert!(broken.feed(b"this is no zstd at all").is_err());
        let mut bomb = GzEncoder::new(Vec::new(), Compression::default());
        bomb.write_all(&vec![0; 1 << 20]).unwrap();
        let mut decoder = ContentDecoder::new(&headers("gzip"), 1000).unwrap();
        let error = decoder.feed(&bomb.finish().unwrap()).unwrap_err();
        assert_eq!(error, "body decodes to more than 1000 bytes");
    }
}
