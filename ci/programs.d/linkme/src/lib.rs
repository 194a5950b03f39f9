//! Each module is an object of its own.

use linkme::distributed_slice;

#[distributed_slice]
static WORDS: [fn() -> &'static str];

mod first {
    #[linkme::distributed_slice(super::WORDS)]
    fn word() -> &'static str {
        "first"
    }
}

mod second {
    #[linkme::distributed_slice(super::WORDS)]
    fn word() -> &'static str {
        "second"
    }
}

mod third {
    pub mod inner {
        #[linkme::distributed_slice(super::super::WORDS)]
        fn word() -> &'static str {
            "third"
        }
    }
}

#[no_mangle]
extern "C" fn main() -> i32 {
    let words: Vec<_> = WORDS.iter().map(|word| word()).collect();
    println!("{words:?}");
    0
}
