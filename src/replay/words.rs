//! Text of our own whose tokens can be told without counting: words that are a token each, and stay so
//! beside one another.
//!
//! Pure. Which words these are differs from model to model and is found out by a few texts. In each of
//! them every candidate stands three times in a row; where the tokens repeat one by one, the word is one
//! token (`single_tokens`). Then every word is tried before and after every other (`pairs`), since a
//! vocabulary may hold two words as one token. What is asked, and of whom, is `asked_words`' affair; which
//! words a prompt has is told by seeds (`tokens`), the same ones by the same seed everywhere.

use std::fmt::Write as _;

use super::tokens::mixed;

/// What every text begins with: chat templates may cut off a space that a text begins with, and some
/// tokenizers add one.
pub const OPENER: &str = "Note";

/// Fewer words would make prompts that are alike by chance.
pub const FEWEST_WORDS: usize = 24;

/// More would make the pairs many, and no prompt less alike.
pub const MOST_WORDS: usize = 128;

/// Candidates in one text, and words in a text of pairs, so that no text is long.
const CHUNK: usize = 120;
const PAIRS_CHUNK: usize = 2000;

/// Tokens that may stand before the first word, and the longest word in tokens that is recognised.
const LONGEST: usize = 16;

/// Common English words, which most vocabularies hold with a space before them.
const ENGLISH: &str = "the and for are but not you all any can had her was one our out day get has him \
    his how man new now old see two way who boy did its let put say she too use air ask bad bed big box \
    car cut eat end far few food good hand have head help here high home hour idea into just keep kind \
    know land last left life like line list live long look made make many mean more most move much must \
    name near need next only open over page part past plan play real rest same seem show side some such \
    take talk tell than that them then they this time turn used very want well went were what when will \
    with word work year your back been best both call case city come down each even ever face fact feel \
    find fire five form four free from full game give gone half hard hear hold hope about above after \
    again alone along among apply being below black board books bring build carry cause check child \
    class clear close color could cover cross daily death doing drive early earth eight enter equal \
    event every exact field final first floor force forms found front given glass goods grand grant \
    great green group hands happy heart heavy hours house human image index input issue items judge \
    known large later laws learn least leave legal level light limit lines lists local looks lower major \
    maybe means might model money month moved names never night noise north notes offer often order \
    other paper parts party peace phone piece place plant point power press price print prove quick \
    quite radio range reach ready refer right river round rules scale scene score sense serve seven \
    shall share short shown since sleep small sound south space speak stage stand start state still \
    stock stood store story study style sugar table taken terms tests their there these thing think \
    third those three times title today total touch tower trade train tried truth under union until \
    upper usage using usual value video visit voice watch water where which while white whole whose \
    woman words works world would write wrong years young action always animal answer anyone around \
    became become before behind better beyond bridge bright cannot center change charge choice church \
    client common course create credit danger deeper degree design detail dinner doctor during either \
    energy engine enough entire escape extent family father figure follow forest formal former future \
    garden ground growth health higher impact income indeed inside island itself laptop larger latest \
    leader letter little living longer making manner market master matter memory method middle minute \
    mother moving nature nearly normal notice number object office others output parent people period \
    person planet player please policy public rather reason recent record reduce region report result \
    return review safety school screen search second sector secret select sender series server should \
    signal silver simple single social source spirit spread spring square status street string strong \
    summer supply system taking theory though thread toward travel trying unique update useful values \
    vector vision visual volume weight window winter within without wonder worker writer written";

/// A word that is one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Single {
    /// As it stands in a text, the space before it included.
    word: String,
    /// Its token.
    id: u32,
}

/// Words that are a token each, in the order of the candidates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    words: Vec<Single>,
    /// Tokens of a text before its first word: of the opener, and a mark of begin.
    before: usize,
}

/// Candidates, family by family: those of the first family that yields enough are taken.
pub fn families() -> [Vec<String>; 2] {
    let mut english: Vec<&str> = ENGLISH.split_whitespace().collect();
    // Words of one length together: an engine that counts bytes has them as tokens of one length.
    english.sort_by_key(|word| word.len());
    let english = english.into_iter().map(|word| format!(" {word}")).collect();
    // Of a vocabulary of characters.
    let characters = ('a'..='z').chain('0'..='9').map(String::from).collect();
    [english, characters]
}

/// The candidates of each text that is to be asked about.
pub fn chunks(family: &[String]) -> Vec<&[String]> {
    let mut chunks = Vec::new();
    for of_one_length in family.chunk_by(|a, b| a.len() == b.len()) {
        chunks.extend(of_one_length.chunks(CHUNK));
    }
    chunks
}

/// The text in which each of some candidates stands three times.
pub fn question(candidates: &[String]) -> String {
    let mut text = OPENER.to_owned();
    for word in candidates {
        text.extend([word.as_str(); 3]);
    }
    text
}

/// Which of the candidates are one token, by the token ids of their `question`; none of them where the
/// ids cannot be told apart into candidates.
pub fn single_tokens(candidates: &[String], ids: &[u32]) -> Words {
    // Before the first word is the opener, and tokens that every text begins with; after the last one
    // may be tokens that every text ends with.
    let parsed = (1..=LONGEST.min(ids.len())).find_map(|before| {
        let mut rest = &ids[before..];
        let mut words = Vec::new();
        for word in candidates {
            let length = (1..=LONGEST).find(|length| is_repeated(rest, *length))?;
            if length == 1 {
                words.push(Single { word: word.clone(), id: rest[0] });
            }
            rest = &rest[3 * length..];
        }
        (rest.len() <= 2).then_some(Words { words, before })
    });
    parsed.unwrap_or_default()
}

/// Whether the ids begin with three equal runs of a length.
fn is_repeated(ids: &[u32], length: usize) -> bool {
    ids.len() >= 3 * length
        && ids[..length] == ids[length..2 * length]
        && ids[..length] == ids[2 * length..3 * length]
}

impl Words {
    /// Takes more words, up to `MOST_WORDS` in all.
    pub fn extend(&mut self, more: Self) {
        if !more.is_empty() {
            self.before = more.before;
        }
        self.words.extend(more.words);
        self.words.truncate(MOST_WORDS);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Rows of words, as their places in the list, in which each follows each, itself included.
    pub fn pairs(&self) -> Vec<Vec<usize>> {
        let n = self.words.len();
        let of_one =
            |one| [one, one].into_iter().chain((one + 1..n).flat_map(move |other| [other, one]));
        let all: Vec<usize> = (0..n).flat_map(of_one).collect();
        // Each row begins with the last word of the one before.
        let mut rows: Vec<Vec<usize>> = all.chunks(PAIRS_CHUNK).map(<[usize]>::to_vec).collect();
        for index in 1..rows.len() {
            let last = rows[index - 1][rows[index - 1].len() - 1];
            rows[index].insert(0, last);
        }
        rows
    }

    /// The text of a row.
    pub fn row_text(&self, row: &[usize]) -> String {
        let words = row.iter().map(|word| self.words[*word].word.as_str());
        std::iter::once(OPENER).chain(words).collect()
    }

    /// The first word of a row that is no longer a token of its own there, by the ids of its text.
    pub fn first_joined(&self, row: &[usize], ids: &[u32]) -> Option<usize> {
        let mut ids = ids.iter().skip(self.before);
        let joined = row.iter().find(|word| ids.next() != Some(&self.words[**word].id));
        // More tokens than words and marks: the last word is several.
        joined.or_else(|| row.last().filter(|_| ids.count() > 2)).copied()
    }

    /// Leaves out a word.
    pub fn remove(&mut self, word: usize) {
        self.words.remove(word);
    }

    /// The first `n` words of a seed.
    pub fn of_seed(&self, seed: u64, n: u64) -> impl Iterator<Item = &str> {
        let width = self.words.len() as u64;
        (0..n).map(move |index| self.words[(mixed(seed, index) % width) as usize].word.as_str())
    }

    /// A text of pieces, each a seed and a number of words, of which the first `n` words are said.
    pub fn text(&self, pieces: impl Iterator<Item = (u64, u64)>, n: u64) -> String {
        let mut text = OPENER.to_owned();
        let mut left = n;
        for (seed, tokens) in pieces {
            let taken = tokens.min(left);
            left -= taken;
            for word in self.of_seed(seed, taken) {
                // A String takes all that is written to it.
                let _ = write!(text, "{word}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(|word| format!(" {word}")).collect()
    }

    #[track_caller]
    fn check_singles(candidates: &str, ids: &[u32], expected: &str, before: usize) {
        let found = single_tokens(&words(candidates), ids);
        let of_one_token: Vec<String> =
            found.words.iter().map(|single| single.word.clone()).collect();
        assert_eq!((of_one_token, found.before), (words(expected), before));
    }

    #[test]
    fn a_word_whose_three_tokens_are_equal_is_one_token() {
        check_singles("a b c", &[9, 1, 1, 1, 2, 2, 2, 3, 3, 3], "a b c", 1);
        // A word of two tokens, and of three.
        check_singles("a b c", &[9, 1, 1, 1, 2, 4, 2, 4, 2, 4, 3, 3, 3], "a c", 1);
        check_singles("a b", &[9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 7, 7, 7], "b", 1);
        // Marks of begin and end, an opener of two tokens.
        check_singles("a b", &[0, 8, 9, 1, 1, 1, 2, 2, 2, 5], "a b", 3);
        // Words that the vocabulary does not know are one and the same token.
        check_singles("a b", &[9, 1, 1, 1, 1, 1, 1], "a b", 1);
        // Tokens that go over the ends of words say nothing.
        check_singles("a b", &[9, 1, 2, 3, 4, 5], "", 0);
        check_singles("a b", &[9, 1, 1, 1, 2, 2], "", 0);
        check_singles("a", &[], "", 0);
    }

    fn numbered(texts: Vec<String>) -> Words {
        let words = texts.into_iter().enumerate();
        let words = words.map(|(id, word)| Single { word, id: id as u32 }).collect();
        Words { words, before: 1 }
    }

    #[test]
    fn each_word_is_tried_before_and_after_each() {
        let table = numbered(words("a b c"));
        assert_eq!(table.pairs(), [vec![0, 0, 1, 0, 2, 0, 1, 1, 2, 1, 2, 2]]);
        assert_eq!(table.row_text(&[0, 2, 1]), "Note a c b");
        let many = numbered(families()[0][..MOST_WORDS].to_vec());
        let rows = many.pairs();
        assert!(rows.iter().all(|row| row.len() <= PAIRS_CHUNK + 1));
        let mut pairs: Vec<[usize; 2]> =
            rows.iter().flat_map(|row| row.windows(2)).map(|pair| [pair[0], pair[1]]).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), MOST_WORDS * MOST_WORDS);
    }

    #[test]
    fn words_that_are_joined_are_found() {
        let table = numbered(words("a b c"));
        let joined = |ids: &[u32]| table.first_joined(&[0, 1, 2], ids);
        assert_eq!(joined(&[9, 0, 1, 2]), None);
        assert_eq!(joined(&[9, 0, 1, 2, 7]), None);
        // Two words as one token; a word as two; nothing at all.
        assert_eq!(joined(&[9, 5, 2]), Some(0));
        assert_eq!(joined(&[9, 0, 6]), Some(1));
        assert_eq!(joined(&[9, 0, 1, 2, 3, 4, 5]), Some(2));
        assert_eq!(joined(&[]), Some(0));
        let mut table = table;
        table.remove(1);
        assert_eq!(table.row_text(&[0, 1]), "Note a c");
        let mut more = numbered(families()[0].clone());
        more.extend(table);
        assert_eq!(more.len(), MOST_WORDS);
    }

    #[test]
    fn candidates_are_many_and_none_is_there_twice() {
        let [english, characters] = families();
        assert!(english.len() > 300, "{}", english.len());
        assert_eq!(characters.len(), 36);
        let mut sorted = english.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), english.len());
        assert_eq!(chunks(&english).concat(), english);
        assert!(chunks(&english).iter().all(|chunk| chunk.len() <= CHUNK));
        let lengths = |chunk: &&[String]| chunk.iter().all(|word| word.len() == chunk[0].len());
        assert!(chunks(&english).iter().all(lengths));
        assert_eq!(question(&words("to be")), "Note to to to be be be");
    }

    #[test]
    fn a_text_has_the_words_of_its_pieces_up_to_its_length() {
        let table = numbered(families()[0][..64].to_vec());
        let text = |pieces: &[(u64, u64)], n| table.text(pieces.iter().copied(), n);
        let whole = text(&[(1, 5), (2, 7)], 12);
        assert_eq!(whole.split_whitespace().count(), 13);
        assert_eq!(text(&[(1, 5), (2, 700)], 12), whole);
        // Shorter pieces of a seed begin the longer ones.
        assert!(whole.starts_with(&text(&[(1, 4)], 99)));
        assert!(text(&[(1, 5), (3, 9)], 99).starts_with(&text(&[(1, 5)], 99)));
        assert_ne!(text(&[(3, 5)], 5), text(&[(1, 5)], 5));
        assert_eq!(text(&[], 5), OPENER);
    }
}
