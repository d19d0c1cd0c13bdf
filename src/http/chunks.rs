//! Chunked framing as it stands on the wire (RFC 9112, 7.1), for who passes it on as it is.
//!
//! Only plain chunks are known here: a size, data, a line's end. The last chunk with its trailers, extensions and
//! whatever else may come are left to a whole parser, which can go on where this one stops.

/// Digits of the longest size.
const MAX_DIGITS: usize = 16;

/// What lies at the front of unread bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// So many bytes of framing around data.
    Framing(usize),
    /// So many bytes of data.
    Data(usize),
    /// It takes more bytes to tell.
    Unfinished,
    /// No plain chunk.
    Other,
}

/// Where in a chunked body the unread bytes begin.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// Data of the current chunk that is still to come.
    left: u64,
    /// Of the line's end after the data, so many bytes are still to come.
    end_left: usize,
}

impl Chunks {
    /// The next piece, which counts as read from then on.
    pub(crate) fn next(&mut self, unread: &[u8]) -> Piece {
        if unread.is_empty() {
            return Piece::Unfinished;
        }
        if self.left > 0 {
            let bytes = usize::try_from(self.left).unwrap_or(usize::MAX).min(unread.len());
            self.left -= bytes as u64;
            if self.left == 0 {
                self.end_left = 2;
            }
            return Piece::Data(bytes);
        }
        if self.end_left > 0 {
            return self.line_end(unread);
        }
        self.size_line(unread)
    }

    fn line_end(&mut self, unread: &[u8]) -> Piece {
        let wanted = &b"\r\n"[2 - self.end_left..];
        let matching =
            wanted.iter().zip(unread).take_while(|(wanted, byte)| wanted == byte).count();
        self.end_left -= matching;
        if matching > 0 { Piece::Framing(matching) } else { Piece::Other }
    }

    /// A size line is whole or not read at all.
    fn size_line(&mut self, unread: &[u8]) -> Piece {
        let mut size: u64 = 0;
        for (at, byte) in unread.iter().enumerate().take(MAX_DIGITS + 1) {
            match (char::from(*byte).to_digit(16), at) {
                (Some(digit), 0..MAX_DIGITS) => size = size << 4 | u64::from(digit),
                (None, 1..) if *byte == b'\r' && size > 0 => {
                    return match unread.get(at + 1) {
                        Some(b'\n') => {
                            self.left = size;
                            Piece::Framing(at + 2)
                        }
                        Some(_) => Piece::Other,
                        None => Piece::Unfinished,
                    };
                }
                _ => return Piece::Other,
            }
        }
        Piece::Unfinished
    }

    /// Whether the unread bytes begin a chunk.
    pub(crate) fn is_between(&self) -> bool {
        self.left == 0 && self.end_left == 0
    }

    /// What a parser that believes itself between two chunks must get before `unread`, the rest of the body, to be
    /// where this one is.
    pub(crate) fn resumption(&self, unread: &[u8]) -> String {
        if self.left > 0 {
            format!("{:x}\r\n", self.left)
        } else if self.end_left > 0 && !unread.is_empty() {
            // The chunk is longer than it said. No size line begins so: the parser refuses the body as well.
            "\r".to_owned()
        } else {
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a whole parser gets before what is left, and what is left.
    type Left = Option<(String, Vec<u8>)>;

    /// Reads what comes in pieces of a size; gives the data, what was framing and data, and what was left when a piece
    /// was no plain chunk (none where all was read), with what a whole parser gets before it.
    fn read(wire: &[u8], size: usize) -> (Vec<u8>, usize, Left) {
        let (mut chunks, mut data, mut passed) = (Chunks::default(), Vec::new(), 0);
        let mut known = 0;
        loop {
            match chunks.next(&wire[passed..known]) {
                Piece::Framing(bytes) => passed += bytes,
                Piece::Data(bytes) => {
                    data.extend_from_slice(&wire[passed..passed + bytes]);
                    passed += bytes;
                }
                Piece::Unfinished if known == wire.len() => return (data, passed, None),
                Piece::Unfinished => known = (known + size).min(wire.len()),
                Piece::Other => {
                    let rest = &wire[passed..];
                    return (data, passed, Some((chunks.resumption(rest), rest.to_vec())));
                }
            }
        }
    }

    #[test]
    fn plain_chunks_are_read_and_the_rest_is_left() {
        for (wire, data, rest) in [
            ("5\r\nhello\r\n3\r\n!!!\r\n0\r\n\r\n", "hello!!!", Some(("", "0\r\n\r\n"))),
            (
                "00a\r\n0123456789\r\n000\r\nX: 1\r\n\r\n",
                "0123456789",
                Some(("", "000\r\nX: 1\r\n\r\n")),
            ),
            ("A\r\n\r\n\r\n\r\n\r\n\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n", None),
            ("2\r\nab\r\n5;a=b\r\nhello\r\n", "ab", Some(("", "5;a=b\r\nhello\r\n"))),
            ("2 \r\nab\r\n", "", Some(("", "2 \r\nab\r\n"))),
            ("2\nab\r\n", "", Some(("", "2\nab\r\n"))),
            ("\r\n", "", Some(("", "\r\n"))),
            ("2\r\nabc\r\n", "ab", Some(("\r", "c\r\n"))),
            ("2\r\nab\rc", "ab", Some(("\r", "c"))),
            ("0000000000000001\r\na\r\n", "a", None),
            ("00000000000000001\r\na\r\n", "", Some(("", "00000000000000001\r\na\r\n"))),
            ("ffffffffffffffff\r\nab", "ab", None),
            ("5\r\nhel", "hel", None),
            ("", "", None),
        ] {
            for size in 1..=wire.len().max(1) {
                let (read, passed, left) = read(wire.as_bytes(), size);
                let rest = rest.map(|(before, rest)| (before.to_owned(), rest.as_bytes().to_vec()));
                assert_eq!(String::from_utf8(read).unwrap(), data, "{wire:?} by {size}");
                assert_eq!(left, rest, "{wire:?} by {size}");
                let left = left.map_or(0, |(_, rest)| rest.len());
                assert_eq!(passed + left, wire.len(), "{wire:?} by {size}");
            }
        }
    }

    #[test]
    fn a_parser_can_go_on_where_a_body_breaks_off() {
        for (wire, before, is_between) in [
            ("14\r\nhello", "f\r\n", false),
            ("5\r\nhello", "", false),
            ("5\r\nhello\r", "", false),
            ("5\r\nhello\r\n", "", true),
            ("5\r\n", "5\r\n", false),
        ] {
            let mut chunks = Chunks::default();
            let mut unread = wire.as_bytes();
            while let Piece::Framing(bytes) | Piece::Data(bytes) = chunks.next(unread) {
                unread = &unread[bytes..];
            }
            assert_eq!(
                (chunks.resumption(unread).as_str(), chunks.is_between()),
                (before, is_between),
                "{wire:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn data_is_what_was_framed(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8), size in 1_usize..50) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            let (data, passed, left) = read(&wire, size);
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!((passed, left), (wire.len(), None));
        }
    }
}
