//! Server-sent events out of bytes: pure, incremental, never failing.
//!
//! Bytes may be cut anywhere, lines may end in LF, CR or CRLF, and what breaks the rules is passed
//! over as the HTML standard says. It differs from the standard in two points: an event that the
//! stream left unfinished is handed out by [`SseDecoder::finish`], and `id` is the event's own, since
//! nothing here reconnects. What the data means is for the caller to say.

/// Longest line, and longest data of one event, that is kept; what is beyond is cut off.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event, borrowed from the decoder for the time of the callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field; empty where there was none.
    pub event: &'a str,
    /// The `data` lines, joined by LF. Bytes that are not UTF-8 became U+FFFD.
    pub data: &'a str,
    /// The `id` field.
    pub id: Option<&'a str>,
    /// The `retry` field, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// The decoder of one stream. Its buffers are reused from event to event.
#[derive(Debug)]
pub struct SseDecoder {
    limit_bytes: usize,
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    pending: PendingEvent,
    /// The last byte was a CR that ended a line: a LF that follows belongs to it.
    after_cr: bool,
    /// No line has ended yet, so a byte order mark may still come.
    at_start: bool,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// A decoder that keeps at most `limit_bytes` of a line and of an event's data.
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            line: Vec::new(),
            pending: PendingEvent::default(),
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next piece and hands out the events that it completes.
    pub fn feed(&mut self, bytes: &[u8], mut on_event: impl FnMut(SseEvent<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                append_up_to(&mut self.line, rest, self.limit_bytes);
                return;
            };
            self.after_cr = rest[end] == b'\r';
            self.end_line(&rest[..end], &mut on_event);
            rest = &rest[end + 1..];
        }
    }

    /// Ends the stream: an event that was not finished by an empty line is handed out all the same.
    pub fn finish(mut self, mut on_event: impl FnMut(SseEvent<'_>)) {
        if !self.line.is_empty() {
            self.end_line(&[], &mut on_event);
        }
        self.pending.dispatch(&mut on_event);
    }

    fn end_line(&mut self, tail: &[u8], on_event: &mut impl FnMut(SseEvent<'_>)) {
        let at_start = std::mem::take(&mut self.at_start);
        if self.line.is_empty() {
            let line = &tail[..tail.len().min(self.limit_bytes)];
            self.pending.take_line(without_mark(line, at_start), self.limit_bytes, on_event);
        } else {
            append_up_to(&mut self.line, tail, self.limit_bytes);
            let line = without_mark(&self.line, at_start);
            self.pending.take_line(line, self.limit_bytes, on_event);
            self.line.clear();
        }
    }
}

/// The fields of the event that is being read.
#[derive(Debug, Default)]
struct PendingEvent {
    data: Vec<u8>,
    has_data: bool,
    event: Vec<u8>,
    id: Vec<u8>,
    has_id: bool,
    retry_ms: Option<u64>,
}

impl PendingEvent {
    fn take_line(
        &mut self,
        line: &[u8],
        limit_bytes: usize,
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) {
        if line.is_empty() {
            self.dispatch(on_event);
            return;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    append_up_to(&mut self.data, b"\n", limit_bytes);
                }
                append_up_to(&mut self.data, value, limit_bytes);
                self.has_data = true;
            }
            b"event" => replace(&mut self.event, value),
            b"id" if !value.contains(&0) => {
                replace(&mut self.id, value);
                self.has_id = true;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            // A comment has an empty field name.
            _ => {}
        }
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(SseEvent<'_>)) {
        if self.has_data {
            let id = self.has_id.then(|| String::from_utf8_lossy(&self.id));
            on_event(SseEvent {
                event: &String::from_utf8_lossy(&self.event),
                data: &String::from_utf8_lossy(&self.data),
                id: id.as_deref(),
                retry_ms: self.retry_ms,
            });
        }
        self.data.clear();
        self.event.clear();
        self.id.clear();
        self.has_data = false;
        self.has_id = false;
        self.retry_ms = None;
    }
}

fn append_up_to(buffer: &mut Vec<u8>, bytes: &[u8], limit_bytes: usize) {
    let room = limit_bytes.saturating_sub(buffer.len());
    buffer.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn replace(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

fn without_mark(line: &[u8], at_start: bool) -> &[u8] {
    if at_start { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    struct Event {
        name: String,
        data: String,
        id: Option<String>,
        retry_ms: Option<u64>,
    }

    impl From<SseEvent<'_>> for Event {
        fn from(event: SseEvent<'_>) -> Self {
            Self {
                name: event.event.to_owned(),
                data: event.data.to_owned(),
                id: event.id.map(str::to_owned),
                retry_ms: event.retry_ms,
            }
        }
    }

    fn decode(pieces: &[&[u8]], limit_bytes: usize) -> Vec<Event> {
        let mut events = Vec::new();
        let mut decoder = SseDecoder::with_limit(limit_bytes);
        for piece in pieces {
            decoder.feed(piece, |event| events.push(event.into()));
        }
        decoder.finish(|event| events.push(event.into()));
        events
    }

    /// The standard's rules in the plainest form: whole text, split into lines, then into events.
    fn reference(bytes: &[u8]) -> Vec<Event> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut lines = vec![Vec::new()];
        let mut position = 0;
        while position < bytes.len() {
            match bytes[position] {
                b'\r' | b'\n' => {
                    if bytes[position..].starts_with(b"\r\n") {
                        position += 1;
                    }
                    lines.push(Vec::new());
                }
                byte => lines.last_mut().unwrap().push(byte),
            }
            position += 1;
        }
        lines.push(Vec::new());
        let mut events = Vec::new();
        let mut data: Vec<Vec<u8>> = Vec::new();
        let mut event = Event::default();
        for line in lines {
            if line.is_empty() {
                if !data.is_empty() {
                    event.data = String::from_utf8_lossy(&data.join(&b'\n')).into_owned();
                    events.push(event);
                }
                (data, event) = (Vec::new(), Event::default());
                continue;
            }
            let mut parts = line.splitn(2, |&byte| byte == b':');
            let field = parts.next().unwrap();
            let value = parts.next().unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
            let text = String::from_utf8_lossy(&value).into_owned();
            match field {
                b"data" => data.push(value),
                b"event" => event.name = text,
                b"id" if !text.contains('\0') => event.id = Some(text),
                b"retry" if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    event.retry_ms = text.parse().ok();
                }
                _ => {}
            }
        }
        events
    }

    fn check(stream: &[u8], expected: &[(&str, &str)]) {
        let shown = String::from_utf8_lossy(stream).into_owned();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(event, data)| ((*event).into(), (*data).into())).collect();
        let whole = decode(&[stream], MAX_EVENT_BYTES);
        let pairs: Vec<_> = whole.iter().map(|e| (e.name.clone(), e.data.clone())).collect();
        assert_eq!(pairs, expected, "{shown:?}");
        assert_eq!(whole, reference(stream), "{shown:?}");
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(&single, MAX_EVENT_BYTES), whole, "{shown:?} byte by byte");
        for cut in 0..=stream.len() {
            let (left, right) = stream.split_at(cut);
            assert_eq!(decode(&[left, right], MAX_EVENT_BYTES), whole, "{shown:?} cut at {cut}");
        }
    }

    #[test]
    fn streams_give_their_events() {
        check(b"", &[]);
        check(b"data: one\n\ndata: two\n\n", &[("", "one"), ("", "two")]);
        check(b"data: one\r\n\r\ndata: two\r\n\r\n", &[("", "one"), ("", "two")]);
        check(b"data: one\r\rdata: two\r\r", &[("", "one"), ("", "two")]);
        check(b"data: one\r\n\rdata: two\n\r\n", &[("", "one"), ("", "two")]);
        check(b"\xef\xbb\xbfdata: marked\n\n", &[("", "marked")]);
        check(b"\xef\xbb\xbf\n\xef\xbb\xbfdata: only the first mark is one\n\n", &[]);
        check(b": keep-alive\n\ndata: x\n: inside\n\n", &[("", "x")]);
        check(b"event: ping\ndata: {}\n\n", &[("ping", "{}")]);
        check(b"event: dropped, for it has no data\n\ndata: x\n\n", &[("", "x")]);
        check(b"data: a\ndata:b\ndata:  c\n\n", &[("", "a\nb\n c")]);
        check(b"data\n\ndata:\n\ndata:\ndata:\n\n", &[("", ""), ("", ""), ("", "\n")]);
        check(b"data: unfinished", &[("", "unfinished")]);
        check(b"data: unfinished\n", &[("", "unfinished")]);
        check(b"event: cut\ndata: in the mi", &[("cut", "in the mi")]);
        check(b"data: \xff\xfe bytes\n\n", &[("", "\u{fffd}\u{fffd} bytes")]);
        check("data: grüße 🦀\n\n".as_bytes(), &[("", "grüße 🦀")]);
        check(b"datum: no field\nda ta: none\ndata: x\n\n", &[("", "x")]);
        check(b"\n\n\n\r\r\n", &[]);
    }

    #[test]
    fn id_and_retry_belong_to_their_event() {
        let events = decode(
            &[b"id: 7\nretry: 2500\ndata: a\n\nid\ndata: b\n\nid: \0\nretry: -1\ndata: c\n\n"],
            MAX_EVENT_BYTES,
        );
        let shown: Vec<_> =
            events.iter().map(|e| (e.id.as_deref(), e.retry_ms, e.data.as_str())).collect();
        assert_eq!(shown, [(Some("7"), Some(2500), "a"), (Some(""), None, "b"), (None, None, "c")]);
    }

    #[test]
    fn what_is_beyond_the_limit_is_cut_off_wherever_the_pieces_end() {
        let stream = b"data: 123456789\ndata: abc\n\ndata: next\n\n";
        let whole = decode(&[stream], 10);
        let data: Vec<_> = whole.iter().map(|event| event.data.as_str()).collect();
        assert_eq!(data, ["1234\nabc", "next"]);
        for size in 1..stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            assert_eq!(decode(&pieces, 10), whole, "pieces of {size}");
        }
        let mut decoder = SseDecoder::with_limit(1000);
        for _ in 0..1000 {
            decoder.feed(&[b'x'; 1000], |event| panic!("{event:?}"));
        }
        assert!(decoder.line.capacity() < 10_000, "{}", decoder.line.capacity());
    }

    fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data:".to_vec()),
            Just(b"data: {\"a\":1}".to_vec()),
            Just(b"event: x".to_vec()),
            Just(b"id: 1".to_vec()),
            Just(b"retry: 12".to_vec()),
            Just(b": note".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(b"\xef\xbb\xbf".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_the_cuts(
            stream in stream_bytes(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut ends: Vec<usize> =
                cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            ends.extend([0, stream.len()]);
            ends.sort_unstable();
            let pieces: Vec<&[u8]> =
                ends.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces, MAX_EVENT_BYTES), reference(&stream));
        }
    }
}
