//! Compares the check and the results of programs with the definitions of the operations.

use crate::bpf::{DATA_WORDS, Instruction, MAX_INSTRUCTIONS, Program};
use crate::errno::Errno;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const LOAD: u16 = 0x20;
const SET_A: u16 = 0x00;
const SET_X: u16 = 0x01;
const RECALL_A: u16 = 0x60;
const RECALL_X: u16 = 0x61;
const KEEP_A: u16 = 0x02;
const KEEP_X: u16 = 0x03;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const DIVIDE_BY_X: u16 = 0x3c;

fn one(code: u16, k: u32) -> Instruction {
    Instruction {
        code,
        if_true: 0,
        if_false: 0,
        k,
    }
}

fn branch(code: u16, k: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        k,
    }
}

fn check(instructions: &[Instruction]) -> Result<Program, Errno> {
    Program::check(instructions.to_vec())
}

fn run(instructions: &[Instruction], data: &[u32; DATA_WORDS]) -> u32 {
    check(instructions).expect("a sound program").run(data)
}

fn data() -> [u32; DATA_WORDS] {
    core::array::from_fn(|word| 100 + word as u32)
}

#[test]
fn instructions_are_eight_bytes() {
    let bytes = [0x15, 0x01, 2, 3, 4, 5, 6, 7];
    let instruction = Instruction::from_bytes(bytes);
    let expected = branch(0x115, 0x0706_0504, 2, 3);
    assert_eq!(instruction, expected);
    assert_eq!(instruction.to_bytes(), bytes);
}

#[test]
fn lengths_are_checked() {
    let of = |length| check(&vec![one(RETURN, 0); length]).is_ok();
    assert!(!of(0) && of(1) && of(MAX_INSTRUCTIONS) && !of(MAX_INSTRUCTIONS + 1));
}

#[test]
fn loads_lie_within_the_data_at_multiples_of_four() {
    for k in 0..80 {
        let program = [one(LOAD, k), one(RETURN_A, 0)];
        if k % 4 == 0 && k < 64 {
            assert_eq!(run(&program, &data()), 100 + k / 4);
        } else {
            assert_eq!(check(&program), Err(Errno::EINVAL), "{k}");
        }
    }
    assert!(check(&[one(LOAD, u32::MAX), one(RETURN_A, 0)]).is_err());
}

#[test]
fn other_instructions_are_refused() {
    let allowed = [
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x0c, 0x14, 0x15, 0x16, 0x1c, 0x1d, 0x20,
        0x24, 0x25, 0x2c, 0x2d, 0x34, 0x35, 0x3c, 0x3d, 0x44, 0x45, 0x4c, 0x4d, 0x54, 0x5c, 0x60,
        0x61, 0x64, 0x6c, 0x74, 0x7c, 0x80, 0x81, 0x84, 0x87, 0xa4, 0xac,
    ];
    for code in 0..0x1000 {
        // The number is a multiple of four below 16, a small shift, and a word that has been
        // written.
        let program = [
            one(KEEP_A, 4),
            one(code, 4),
            one(RETURN, 0),
            one(RETURN, 0),
            one(RETURN, 0),
            one(RETURN, 0),
            one(RETURN, 0),
        ];
        assert_eq!(check(&program).is_ok(), allowed.contains(&code), "{code:x}");
    }
}

#[test]
fn the_end_is_a_return() {
    assert!(check(&[one(SET_A, 0)]).is_err());
    assert!(check(&[one(RETURN, 0), one(SET_A, 0)]).is_err());
    assert!(check(&[one(SET_A, 0), one(RETURN_A, 0)]).is_ok());
}

#[test]
fn jumps_stay_within() {
    let end = one(RETURN, 0);
    assert!(check(&[one(JUMP, 0), end]).is_ok());
    assert!(check(&[one(JUMP, 1), end]).is_err());
    assert!(check(&[one(JUMP, u32::MAX), end]).is_err());
    assert!(check(&[branch(IF_EQUAL, 0, 1, 0), end, end]).is_ok());
    assert!(check(&[branch(IF_EQUAL, 0, 2, 0), end, end]).is_err());
    assert!(check(&[branch(IF_EQUAL, 0, 0, 2), end, end]).is_err());
}

#[test]
fn constants_are_checked() {
    let with = |code, k| check(&[one(code, k), one(RETURN, 0)]).is_ok();
    assert!(with(0x34, 1) && !with(0x34, 0) && with(0x3c, 0));
    for shift in [0x64, 0x74] {
        assert!(with(shift, 31) && !with(shift, 32) && !with(shift, u32::MAX));
        // The operand is X, so the number is ignored.
        assert!(with(shift | 8, 32));
    }
    assert!(with(KEEP_A, 15) && !with(KEEP_A, 16) && !with(KEEP_X, u32::MAX));
}

#[test]
fn memory_is_kept_before_it_is_recalled() {
    let end = one(RETURN_A, 0);
    assert!(check(&[one(RECALL_A, 0), end]).is_err());
    assert!(check(&[one(KEEP_A, 1), one(RECALL_X, 0), end]).is_err());
    assert!(check(&[one(KEEP_A, 1), one(RECALL_X, 1), end]).is_ok());
    // Only one of two paths has written the word.
    let one_way = [
        branch(IF_EQUAL, 0, 0, 1),
        one(KEEP_A, 3),
        one(RECALL_A, 3),
        end,
    ];
    assert!(check(&one_way).is_err());
    let both_ways = [
        branch(IF_EQUAL, 0, 0, 2),
        one(KEEP_A, 3),
        one(JUMP, 1),
        one(KEEP_X, 3),
        one(RECALL_A, 3),
        end,
    ];
    assert!(check(&both_ways).is_ok());
    // An unreachable instruction may read any word.
    assert!(check(&[one(JUMP, 1), one(RECALL_A, 3), end]).is_ok());
}

#[test]
fn division_by_zero_returns_zero() {
    let program = [one(SET_A, 7), one(DIVIDE_BY_X, 0), one(RETURN, 9)];
    assert_eq!(run(&program, &data()), 0);
}

#[test]
fn branches_take_their_ways() {
    for (code, holds) in [(0x15, 0b010), (0x25, 0b100), (0x35, 0b110), (0x45, 0b110)] {
        for (n, a) in [4, 6, 7].into_iter().enumerate() {
            let program = [
                one(SET_A, a),
                branch(code, 6, 1, 0),
                one(RETURN, 0),
                one(RETURN, 1),
            ];
            // 4, 6 and 7 all have a bit of 6 set.
            let expected = if code == IF_ANY_BIT {
                1
            } else {
                holds >> n & 1
            };
            assert_eq!(run(&program, &data()), expected, "{code:x} {a}");
        }
    }
    let none = [
        one(SET_A, 8),
        branch(IF_ANY_BIT, 7, 1, 0),
        one(RETURN, 0),
        one(RETURN, 1),
    ];
    assert_eq!(run(&none, &data()), 0);
}

#[test]
fn instructions_count_as_linux_translates_them() {
    let counts = |body: &[Instruction]| {
        let mut program = body.to_vec();
        program.extend([one(RETURN_A, 0); 4]);
        check(&program).expect("a sound program").translated() - 3 - 4
    };
    assert_eq!(counts(&[]), 0);
    assert_eq!(counts(&[one(RETURN, 0)]), 2);
    assert_eq!(counts(&[one(LOAD, 0), one(KEEP_A, 0), one(JUMP, 0)]), 3);
    assert_eq!(counts(&[one(DIVIDE_BY_X, 0)]), 5);
    assert_eq!(counts(&[branch(IF_EQUAL, 1, 1, 0)]), 1);
    assert_eq!(counts(&[branch(IF_EQUAL, 1, 0, 1)]), 1);
    assert_eq!(counts(&[branch(IF_EQUAL, 1, 1, 2)]), 2);
    assert_eq!(counts(&[branch(IF_ANY_BIT, 1, 0, 1)]), 2);
    assert_eq!(counts(&[branch(IF_EQUAL, 1 << 31, 1, 2)]), 3);
}

/// Applies the instruction `code` to `a`, the value of register A, and to `b`, by 64-bit
/// arithmetic. Returns the new value of A, or `None` on a division by zero.
fn model(code: u16, a: u32, b: u32) -> Option<u32> {
    let (wide, other) = (u64::from(a), u64::from(b));
    let result = match code & !8 {
        0x04 => wide + other,
        0x14 => wide + (1 << 32) - other,
        0x24 => wide * other,
        0x34 => wide.checked_div(other)?,
        0x44 => wide | other,
        0x54 => wide & other,
        0x64 => wide << (other & 31),
        0x74 => wide >> (other & 31),
        0x84 => (1 << 32) - wide,
        0xa4 => wide ^ other,
        _ => unreachable!(),
    };
    Some(result as u32)
}

fn arithmetic() -> impl Strategy<Value = u16> {
    let codes = vec![
        0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74,
        0x7c, 0x84, 0xa4, 0xac,
    ];
    prop::sample::select(codes)
}

/// Generates mostly valid instructions, with a few codes and small numbers.
fn instruction() -> impl Strategy<Value = Instruction> {
    let codes = vec![
        0x00, 0x01, 0x02, 0x03, 0x05, 0x07, 0x0c, 0x15, 0x16, 0x1d, 0x20, 0x24, 0x25, 0x35, 0x3c,
        0x45, 0x60, 0x61, 0x64, 0x6c, 0x74, 0x7c, 0x80, 0x81, 0x84, 0x87,
    ];
    let code = prop_oneof![20 => prop::sample::select(codes), 1 => any::<u16>()];
    let k = prop_oneof![10 => 0..20_u32, 1 => any::<u32>()];
    (code, 0..6_u8, 0..6_u8, k).prop_map(|(code, if_true, if_false, k)| Instruction {
        code,
        if_true,
        if_false,
        // Loads are mostly aligned.
        k: if code == LOAD { k.wrapping_mul(4) } else { k },
    })
}

proptest! {
    #[test]
    fn arithmetic_is_that_of_the_model(code in arithmetic(), a: u32, b in prop_oneof![any::<u32>(), 0..40_u32]) {
        let program = [one(SET_A, a), one(SET_X, b), one(code, b), one(RETURN_A, 0)];
        match check(&program) {
            Ok(program) => prop_assert_eq!(program.run(&data()), model(code, a, b).unwrap_or(0)),
            Err(error) => {
                prop_assert_eq!(error, Errno::EINVAL);
                prop_assert!(code == 0x34 && b == 0 || [0x64, 0x74].contains(&code) && b > 31);
            }
        }
    }

    #[test]
    fn sound_programs_end(mut body in prop::collection::vec(instruction(), 0..24), data: [u32; DATA_WORDS]) {
        body.extend([one(RETURN, 5); 6]);
        if let Ok(program) = Program::check(body) {
            program.run(&data);
            prop_assert!(program.translated() > program.instructions().len());
        }
    }

    #[test]
    fn anything_is_checked_without_harm(bytes in prop::collection::vec(any::<[u8; 8]>(), 0..40), data: [u32; DATA_WORDS]) {
        let instructions: Vec<_> = bytes.into_iter().map(Instruction::from_bytes).collect();
        if let Ok(program) = Program::check(instructions) {
            program.run(&data);
        }
    }

    #[test]
    fn loads_beyond_the_data_are_refused(before in prop::collection::vec(instruction(), 0..8), k in 64..u32::MAX) {
        let mut body = before;
        body.push(one(LOAD, k));
        body.extend([one(RETURN, 5); 8]);
        prop_assert_eq!(Program::check(body), Err(Errno::EINVAL));
    }
}
