//! Bytes as hex digits, without the formatter: a long turn names its units by hundreds of hashes.

/// Two lower-case digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        digits.push(char::from(DIGITS[usize::from(byte >> 4)]));
        digits.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn digits_are_those_of_the_formatter() {
        for number in [0_u128, 1, 0x0123_4567_89ab_cdef, u128::MAX - 15, 1 << 127] {
            assert_eq!(hex(&number.to_be_bytes()), format!("{number:032x}"));
        }
        assert_eq!(hex(&[]), "");
    }
}
