use super::{Damage, Fill, POISON, POISON_WORD, damage, switch};
use std::vec;

#[test]
fn a_page_of_poison_or_of_zeros_is_sound() {
    for fill in [POISON_WORD, 0] {
        assert_eq!(damage(vec![fill; 512].into_iter()), None);
    }
}

#[test]
fn one_write_is_found_wherever_it_is() {
    for (fill, value) in [
        (POISON_WORD, 0),
        (POISON_WORD, POISON_WORD + 1),
        (0, POISON_WORD),
        (0, 1),
    ] {
        for index in 0..512 {
            let mut page = vec![fill; 512];
            page[index] = value;
            let found = damage(page.into_iter()).expect("it is there");
            let expected = Damage {
                word: value,
                index,
                words: 1,
                expected: fill,
            };
            assert_eq!(found, expected);
            assert_eq!(found.is_single_bit(), (fill ^ value).count_ones() == 1);
        }
    }
}

#[test]
fn a_page_that_was_half_dropped_is_not_sound() {
    let mut page = vec![POISON_WORD; 512];
    page[..256].fill(0);
    assert_eq!(
        damage(page.into_iter()).map(|damage| damage.words),
        Some(256)
    );
    assert!(damage(vec![1; 512].into_iter()).is_some_and(|damage| damage.words == 512));
}

#[test]
fn poison_goes_before_zeros_and_the_host_is_told_which() {
    assert_eq!(Fill::of(true, true), Fill::Poison);
    assert_eq!(Fill::of(false, true).pattern(), Some(0));
    assert_eq!(Fill::of(false, false).pattern(), None);
    let pattern = Fill::of(true, false).pattern();
    assert_eq!(pattern.map(u32::to_le_bytes), Some([POISON; 4]));
}

#[test]
fn switches_are_read_as_linux_reads_them() {
    for on in ["1", "y", "Y", "yes", "on", "ON", "t", "true", "1x"] {
        assert_eq!(switch(on), Some(true), "{on}");
    }
    for off in ["0", "n", "N", "no", "off", "oFF", "f", "00"] {
        assert_eq!(switch(off), Some(false), "{off}");
    }
    for neither in ["", "o", "2", " 1", "x", "o1"] {
        assert_eq!(switch(neither), None, "{neither}");
    }
}
