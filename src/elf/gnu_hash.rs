//! `.gnu.hash`: the table by which the dynamic loader finds names.

use super::image_bytes::ImageBytes;

const FILTER_SHIFT: u32 = 6;
const WORD_BITS: u32 = 64;
/// Bytes before the Bloom filter.
pub(super) const GNU_HASH_HEADER: u64 = 16;

/// The hash of `DT_GNU_HASH`.
pub(crate) fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

/// Returns the bucket of a hash in a table of this many names, which are in the order of their buckets.
pub(crate) fn gnu_hash_bucket(hash: u32, names: usize) -> u32 {
    hash % buckets(names)
}

/// Returns the bytes of the Bloom filter for this many names.
pub(super) fn gnu_hash_filter_bytes(names: usize) -> u64 {
    u64::from(WORD_BITS / 8) * filter_words(names) as u64
}

/// Returns the table of names whose hashes are in the order of their buckets. `first`: the first one's index in the
/// symbol table.
pub(crate) fn gnu_hash_table(hashes: &[u32], first: u32) -> Vec<u8> {
    let bucket = |hash: &u32| gnu_hash_bucket(*hash, hashes.len());
    let mut filter = vec![0_u64; filter_words(hashes.len())];
    let words = filter.len();
    for hash in hashes {
        if let Some(word) = filter.get_mut((hash / WORD_BITS) as usize % words) {
            *word |= 1 << (hash % WORD_BITS) | 1 << ((hash >> FILTER_SHIFT) % WORD_BITS);
        }
    }
    let mut starts = vec![0; buckets(hashes.len()) as usize];
    for (at, hash) in (first..).zip(hashes) {
        if let Some(start) = starts.get_mut(bucket(hash) as usize).filter(|start| **start == 0) {
            *start = at;
        }
    }
    let mut out = ImageBytes::with_capacity(GNU_HASH_HEADER as usize + 8 * words + 4 * (hashes.len() + starts.len()));
    [starts.len() as u32, first, words as u32, FILTER_SHIFT].into_iter().for_each(|word| out.word(word));
    filter.into_iter().for_each(|word| out.long(word));
    starts.into_iter().for_each(|start| out.word(start));
    // The lowest bit ends a bucket's chain.
    for (i, hash) in hashes.iter().enumerate() {
        let is_last = hashes.get(i + 1).is_none_or(|next| bucket(next) != bucket(hash));
        out.word(hash & !1 | u32::from(is_last));
    }
    out.into_bytes()
}

/// Returns the bytes of a table for this many names that begins with these bytes.
pub(super) fn gnu_hash_size(header: &[u8], names: usize) -> Option<u64> {
    let [buckets, filter] = [word(header, 0)?, word(header, 8)?].map(u64::from);
    Some(GNU_HASH_HEADER + 8 * filter + 4 * (buckets + names as u64))
}

/// Looks a hash up in a table: returns the first symbol of that hash that `named` takes.
pub(super) fn gnu_hash_find<T>(table: &[u8], hash: u32, named: impl Fn(u32) -> Option<T>) -> Option<T> {
    let [buckets, first, filter, shift] = [word(table, 0)?, word(table, 4)?, word(table, 8)?, word(table, 12)?];
    let filters = GNU_HASH_HEADER as usize;
    let starts = filters + 8 * filter as usize;
    let filter_word = table.get(filters + 8 * ((hash / WORD_BITS).checked_rem(filter)?) as usize..starts)?;
    let bit = |hash: u32| 1_u64 << (hash % WORD_BITS);
    let bits = bit(hash) | bit(hash.checked_shr(shift)?);
    if u64::from_le_bytes(*filter_word.first_chunk()?) & bits != bits {
        return None;
    }
    let chains = starts + 4 * buckets as usize;
    let start = word(table, starts + 4 * hash.checked_rem(buckets)? as usize)?;
    let mut chain = chains + 4 * start.checked_sub(first)? as usize;
    for symbol in start.. {
        let entry = word(table, chain)?;
        if (entry ^ hash) < 2
            && let Some(found) = named(symbol)
        {
            return Some(found);
        }
        if entry & 1 == 1 {
            return None;
        }
        chain += 4;
    }
    None
}

fn word(table: &[u8], at: usize) -> Option<u32> {
    table.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn buckets(names: usize) -> u32 {
    (names as u32 / 2).max(1)
}

fn filter_words(names: usize) -> usize {
    (names / 4).max(1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of some names, which are in its order, and begin at symbol 7.
    fn table(count: usize) -> (Vec<String>, Vec<u8>) {
        let mut names: Vec<String> = (0..count).map(|i| format!("name{}", i * 7919)).collect();
        names.sort_by_key(|name| gnu_hash_bucket(gnu_hash(name), count));
        let table = gnu_hash_table(&names.iter().map(|name| gnu_hash(name)).collect::<Vec<_>>(), 7);
        (names, table)
    }

    fn find(names: &[String], table: &[u8], name: &str) -> Option<u32> {
        let named = |symbol: u32| (names.get(symbol.checked_sub(7)? as usize)? == name).then_some(symbol);
        gnu_hash_find(table, gnu_hash(name), named)
    }

    #[test]
    fn names_are_found() {
        for count in [0, 1, 2, 3, 10, 1000] {
            let (names, table) = table(count);
            for (name, symbol) in names.iter().zip(7..) {
                assert_eq!(find(&names, &table, name), Some(symbol));
                assert_eq!(find(&names, &table, &format!("{name} ")), None);
            }
            assert_eq!(gnu_hash_size(&table, count), Some(table.len() as u64));
        }
    }

    #[test]
    fn damaged_tables_end() {
        let (names, whole) = table(10);
        let ask = |table: &[u8]| names.iter().filter(|name| find(&names, table, name).is_some()).count();
        let least = (0..whole.len()).map(|end| ask(&whole[..end])).max().unwrap();
        assert!(least < names.len());
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut table = whole.clone();
                table[at] ^= flip;
                ask(&table);
            }
        }
    }
}
