//! AArch64, from AAELF64 ("Relocation") and PAuthABI; `since` was found by giving each kind to the `llvm-jitlink` of
//! each LLVM.

use super::Field::{self, *};
use super::Operation::*;
use super::Range::*;
use super::terms::tls::*;
use super::{Kind, index_of, new};

pub(super) static INDEX: [u8; 1056] = index_of(KINDS);

// Carriers of kinds that JITLink lacks: JITLink inspects the instruction of neither when it builds the graph.
const ABS64: u32 = 257; // R_AARCH64_ABS64
const GOT: u32 = 311; // R_AARCH64_ADR_GOT_PAGE

// MOVZ and MOVK stay and take 16 bits of the value; for the signed kinds the sign chooses MOVZ or MOVN.
const G0: Field = MovW { group: 0, signed: false };
const G1: Field = MovW { group: 1, signed: false };
const G2: Field = MovW { group: 2, signed: false };
const G3: Field = MovW { group: 3, signed: false };
const S0: Field = MovW { group: 0, signed: true };
const S1: Field = MovW { group: 1, signed: true };
const S2: Field = MovW { group: 2, signed: true };
const S3: Field = MovW { group: 3, signed: true };
const LO12: Field = Imm12 { low: 0, high: 12 };
const LO12_2: Field = Imm12 { low: 1, high: 12 };
const LO12_4: Field = Imm12 { low: 2, high: 12 };
const LO12_8: Field = Imm12 { low: 3, high: 12 };
const LO12_16: Field = Imm12 { low: 4, high: 12 };
const LO15: Field = Imm12 { low: 3, high: 15 };
const HI12: Field = Imm12 { low: 12, high: 24 };

type Shape = &'static [(u32, u32)];

const ADR: Shape = &[(0x9f00_0000, 0x1000_0000)];
const ADRP: Shape = &[(0x9f00_0000, 0x9000_0000)];
const ADD: Shape = &[(0x7f80_0000, 0x1100_0000)];
const BRANCH: Shape = &[(0x7c00_0000, 0x1400_0000)];
const TEST_BRANCH: Shape = &[(0x7e00_0000, 0x3600_0000)];
const CONDITIONAL_BRANCH: Shape = &[(0xff00_0000, 0x5400_0000), (0x7e00_0000, 0x3400_0000)];
const LDR_LITERAL: Shape = &[(0x3b00_0000, 0x1800_0000)];
const LDR_LITERAL_X: Shape = &[(0xff00_0000, 0x5800_0000)];
const LDR_X: Shape = &[(0xffc0_0000, 0xf940_0000)];
// Loads and stores with a scaled 12-bit offset; size 0 is a byte, or 16 bytes of a vector register.
const LDST8: Shape = &[(0xff00_0000, 0x3900_0000), (0xff80_0000, 0x3d00_0000)];
const LDST16: Shape = &[(0xfb00_0000, 0x7900_0000)];
const LDST32: Shape = &[(0xfb00_0000, 0xb900_0000)];
const LDST64: Shape = &[(0xfb00_0000, 0xf900_0000)];
const LDST128: Shape = &[(0xff80_0000, 0x3d80_0000)];
// Wide moves by the position of their 16 bits; AAELF64 says which of MOVZ, MOVK and MOVN a kind applies to.
const MOV_KZ_G0: Shape = &[(0x5fe0_0000, 0x5280_0000)];
const MOV_KZ_G1: Shape = &[(0x5fe0_0000, 0x52a0_0000)];
const MOV_KZ_G2: Shape = &[(0x5fe0_0000, 0x52c0_0000)];
const MOV_KZ_G3: Shape = &[(0x5fe0_0000, 0x52e0_0000)];
const MOV_NZ_G0: Shape = &[(0x3fe0_0000, 0x1280_0000)];
const MOV_NZ_G1: Shape = &[(0x3fe0_0000, 0x12a0_0000)];
const MOV_NZ_G2: Shape = &[(0x3fe0_0000, 0x12c0_0000)];
const MOV_NZ_G3: Shape = &[(0x3fe0_0000, 0x12e0_0000)];
const MOVK_G0: Shape = &[(0x7fe0_0000, 0x7280_0000)];
const MOVK_G1: Shape = &[(0x7fe0_0000, 0x72a0_0000)];
const MOVK_G2: Shape = &[(0x7fe0_0000, 0x72c0_0000)];

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    new(0, "R_AARCH64_NONE", None, Nothing, Empty, Unchecked).drop(),
    new(256, "R_AARCH64_NONE (withdrawn)", None, Nothing, Empty, Unchecked).drop(),
    new(257, "R_AARCH64_ABS64", Some(15), Absolute, Data(64), Unchecked),
    new(258, "R_AARCH64_ABS32", Some(17), Absolute, Data(32), Either(32)).lift(ABS64),
    new(259, "R_AARCH64_ABS16", None, Absolute, Data(16), Either(16)).lift(ABS64),
    new(260, "R_AARCH64_PREL64", Some(15), Relative, Data(64), Unchecked),
    new(261, "R_AARCH64_PREL32", Some(15), Relative, Data(32), Either(32)),
    new(262, "R_AARCH64_PREL16", None, Relative, Data(16), Either(16)).lift(ABS64),
    new(263, "R_AARCH64_MOVW_UABS_G0", None, Absolute, G0, Unsigned(16)).shape(MOV_KZ_G0).lift(ABS64),
    new(264, "R_AARCH64_MOVW_UABS_G0_NC", Some(15), Absolute, G0, Unchecked).shape(MOV_KZ_G0),
    new(265, "R_AARCH64_MOVW_UABS_G1", None, Absolute, G1, Unsigned(32)).shape(MOV_KZ_G1).lift(ABS64),
    new(266, "R_AARCH64_MOVW_UABS_G1_NC", Some(15), Absolute, G1, Unchecked).shape(MOV_KZ_G1),
    new(267, "R_AARCH64_MOVW_UABS_G2", None, Absolute, G2, Unsigned(48)).shape(MOV_KZ_G2).lift(ABS64),
    new(268, "R_AARCH64_MOVW_UABS_G2_NC", Some(15), Absolute, G2, Unchecked).shape(MOV_KZ_G2),
    new(269, "R_AARCH64_MOVW_UABS_G3", Some(15), Absolute, G3, Unchecked).shape(MOV_KZ_G3),
    new(270, "R_AARCH64_MOVW_SABS_G0", None, Absolute, S0, Signed(17)).shape(MOV_NZ_G0).lift(ABS64),
    new(271, "R_AARCH64_MOVW_SABS_G1", None, Absolute, S1, Signed(33)).shape(MOV_NZ_G1).lift(ABS64),
    new(272, "R_AARCH64_MOVW_SABS_G2", None, Absolute, S2, Signed(49)).shape(MOV_NZ_G2).lift(ABS64),
    new(273, "R_AARCH64_LD_PREL_LO19", Some(19), Relative, Imm19, Signed(21)).shape(LDR_LITERAL).lift(ABS64),
    new(274, "R_AARCH64_ADR_PREL_LO21", Some(17), Relative, Adr, Signed(21)).shape(ADR).lift(ABS64),
    new(275, "R_AARCH64_ADR_PREL_PG_HI21", Some(15), PageRelative, Adrp, Signed(33)).shape(ADRP),
    new(276, "R_AARCH64_ADR_PREL_PG_HI21_NC", None, PageRelative, Adrp, Unchecked).shape(ADRP).lift(ABS64),
    new(277, "R_AARCH64_ADD_ABS_LO12_NC", Some(15), PageOffset, LO12, Unchecked).shape(ADD),
    new(278, "R_AARCH64_LDST8_ABS_LO12_NC", Some(15), PageOffset, LO12, Unchecked).shape(LDST8),
    new(279, "R_AARCH64_TSTBR14", Some(17), Relative, Imm14, Signed(16)).shape(TEST_BRANCH).lift(ABS64),
    new(280, "R_AARCH64_CONDBR19", Some(17), Relative, Imm19, Signed(21)).shape(CONDITIONAL_BRANCH).lift(ABS64),
    new(282, "R_AARCH64_JUMP26", Some(15), Relative, Imm26, Signed(28)).stub().shape(BRANCH),
    new(283, "R_AARCH64_CALL26", Some(15), Relative, Imm26, Signed(28)).stub().shape(BRANCH),
    new(284, "R_AARCH64_LDST16_ABS_LO12_NC", Some(15), PageOffset, LO12_2, Unchecked).shape(LDST16),
    new(285, "R_AARCH64_LDST32_ABS_LO12_NC", Some(15), PageOffset, LO12_4, Unchecked).shape(LDST32),
    new(286, "R_AARCH64_LDST64_ABS_LO12_NC", Some(15), PageOffset, LO12_8, Unchecked).shape(LDST64),
    new(287, "R_AARCH64_MOVW_PREL_G0", None, Relative, S0, Signed(17)).shape(MOV_NZ_G0).lift(ABS64),
    new(288, "R_AARCH64_MOVW_PREL_G0_NC", None, Relative, G0, Unchecked).shape(MOVK_G0).lift(ABS64),
    new(289, "R_AARCH64_MOVW_PREL_G1", None, Relative, S1, Signed(33)).shape(MOV_NZ_G1).lift(ABS64),
    new(290, "R_AARCH64_MOVW_PREL_G1_NC", None, Relative, G1, Unchecked).shape(MOVK_G1).lift(ABS64),
    new(291, "R_AARCH64_MOVW_PREL_G2", None, Relative, S2, Signed(49)).shape(MOV_NZ_G2).lift(ABS64),
    new(292, "R_AARCH64_MOVW_PREL_G2_NC", None, Relative, G2, Unchecked).shape(MOVK_G2).lift(ABS64),
    new(293, "R_AARCH64_MOVW_PREL_G3", None, Relative, S3, Unchecked).shape(MOV_NZ_G3).lift(ABS64),
    new(299, "R_AARCH64_LDST128_ABS_LO12_NC", Some(15), PageOffset, LO12_16, Unchecked).shape(LDST128),
    new(300, "R_AARCH64_MOVW_GOTOFF_G0", None, GotFromGot, S0, Signed(17)).shape(MOV_NZ_G0).addend(0).lift(GOT),
    new(301, "R_AARCH64_MOVW_GOTOFF_G0_NC", None, GotFromGot, G0, Unchecked).shape(MOVK_G0).addend(0).lift(GOT),
    new(302, "R_AARCH64_MOVW_GOTOFF_G1", None, GotFromGot, S1, Signed(33)).shape(MOV_NZ_G1).addend(0).lift(GOT),
    new(303, "R_AARCH64_MOVW_GOTOFF_G1_NC", None, GotFromGot, G1, Unchecked).shape(MOVK_G1).addend(0).lift(GOT),
    new(304, "R_AARCH64_MOVW_GOTOFF_G2", None, GotFromGot, S2, Signed(49)).shape(MOV_NZ_G2).addend(0).lift(GOT),
    new(305, "R_AARCH64_MOVW_GOTOFF_G2_NC", None, GotFromGot, G2, Unchecked).shape(MOVK_G2).addend(0).lift(GOT),
    new(306, "R_AARCH64_MOVW_GOTOFF_G3", None, GotFromGot, S3, Unchecked).shape(MOV_NZ_G3).addend(0).lift(GOT),
    new(307, "R_AARCH64_GOTREL64", None, FromGot, Data(64), Unchecked).lift(ABS64),
    new(308, "R_AARCH64_GOTREL32", None, FromGot, Data(32), Signed(32)).lift(ABS64),
    new(309, "R_AARCH64_GOT_LD_PREL19", None, GotRelative, Imm19, Signed(21)).shape(LDR_LITERAL_X).addend(0).lift(GOT),
    new(310, "R_AARCH64_LD64_GOTOFF_LO15", None, GotFromGot, LO15, Unsigned(15)).shape(LDR_X).addend(0).lift(GOT),
    new(311, "R_AARCH64_ADR_GOT_PAGE", Some(15), GotPageRelative, Adrp, Signed(33)).shape(ADRP).addend(0),
    new(312, "R_AARCH64_LD64_GOT_LO12_NC", Some(15), GotPageOffset, LO12_8, Unchecked).shape(LDR_X).addend(0),
    new(313, "R_AARCH64_LD64_GOTPAGE_LO15", Some(20), GotFromGotPage, LO15, Unsigned(15)).shape(LDR_X).addend(0).lift(GOT),
    new(314, "R_AARCH64_PLT32", None, Relative, Data(32), Signed(32)).stub().lift(ABS64),
    new(315, "R_AARCH64_GOTPCREL32", None, GotRelative, Data(32), Signed(32)).lift(GOT),
    new(316, "R_AARCH64_PATCHINST", None, Patch, Data(32), Unsigned(32)),
    new(317, "R_AARCH64_FUNCINIT64", None, Resolver, Data(64), Unchecked),
    new(512, "R_AARCH64_TLSGD_ADR_PREL21", None, GD, Adr, Signed(21)).got().lift(ABS64),
    new(513, "R_AARCH64_TLSGD_ADR_PAGE21", None, GD_PAGE, Adrp, Signed(33)).got().lift(ABS64),
    new(514, "R_AARCH64_TLSGD_ADD_LO12_NC", None, GD_LOW, LO12, Unchecked).got().lift(ABS64),
    new(515, "R_AARCH64_TLSGD_MOVW_G1", None, UNLINKED, S1, Signed(33)).got(),
    new(516, "R_AARCH64_TLSGD_MOVW_G0_NC", None, UNLINKED, G0, Unchecked).got(),
    new(517, "R_AARCH64_TLSLD_ADR_PREL21", None, LD, Adr, Signed(21)).got().lift(ABS64),
    new(518, "R_AARCH64_TLSLD_ADR_PAGE21", None, LD_PAGE, Adrp, Signed(33)).got().lift(ABS64),
    new(519, "R_AARCH64_TLSLD_ADD_LO12_NC", None, LD_LOW, LO12, Unchecked).got().lift(ABS64),
    new(520, "R_AARCH64_TLSLD_MOVW_G1", None, UNLINKED, S1, Signed(33)).got(),
    new(521, "R_AARCH64_TLSLD_MOVW_G0_NC", None, UNLINKED, G0, Unchecked).got(),
    new(522, "R_AARCH64_TLSLD_LD_PREL19", None, LD, Imm19, Signed(21)).got().lift(ABS64),
    new(523, "R_AARCH64_TLSLD_MOVW_DTPREL_G2", None, IN_BLOCK, S2, Signed(49)).lift(ABS64),
    new(524, "R_AARCH64_TLSLD_MOVW_DTPREL_G1", None, IN_BLOCK, S1, Signed(33)).lift(ABS64),
    new(525, "R_AARCH64_TLSLD_MOVW_DTPREL_G1_NC", None, IN_BLOCK, G1, Unchecked).lift(ABS64),
    new(526, "R_AARCH64_TLSLD_MOVW_DTPREL_G0", None, IN_BLOCK, S0, Signed(17)).lift(ABS64),
    new(527, "R_AARCH64_TLSLD_MOVW_DTPREL_G0_NC", None, IN_BLOCK, G0, Unchecked).lift(ABS64),
    new(528, "R_AARCH64_TLSLD_ADD_DTPREL_HI12", None, IN_BLOCK, HI12, Unsigned(24)).lift(ABS64),
    new(529, "R_AARCH64_TLSLD_ADD_DTPREL_LO12", None, IN_BLOCK, LO12, Unsigned(12)).lift(ABS64),
    new(530, "R_AARCH64_TLSLD_ADD_DTPREL_LO12_NC", None, IN_BLOCK, LO12, Unchecked).lift(ABS64),
    new(531, "R_AARCH64_TLSLD_LDST8_DTPREL_LO12", None, IN_BLOCK, LO12, Unsigned(12)).lift(ABS64),
    new(532, "R_AARCH64_TLSLD_LDST8_DTPREL_LO12_NC", None, IN_BLOCK, LO12, Unchecked).lift(ABS64),
    new(533, "R_AARCH64_TLSLD_LDST16_DTPREL_LO12", None, IN_BLOCK, LO12_2, Unsigned(12)).lift(ABS64),
    new(534, "R_AARCH64_TLSLD_LDST16_DTPREL_LO12_NC", None, IN_BLOCK, LO12_2, Unchecked).lift(ABS64),
    new(535, "R_AARCH64_TLSLD_LDST32_DTPREL_LO12", None, IN_BLOCK, LO12_4, Unsigned(12)).lift(ABS64),
    new(536, "R_AARCH64_TLSLD_LDST32_DTPREL_LO12_NC", None, IN_BLOCK, LO12_4, Unchecked).lift(ABS64),
    new(537, "R_AARCH64_TLSLD_LDST64_DTPREL_LO12", None, IN_BLOCK, LO12_8, Unsigned(12)).lift(ABS64),
    new(538, "R_AARCH64_TLSLD_LDST64_DTPREL_LO12_NC", None, IN_BLOCK, LO12_8, Unchecked).lift(ABS64),
    new(539, "R_AARCH64_TLSIE_MOVW_GOTTPREL_G1", None, UNLINKED, S1, Signed(33)).got(),
    new(540, "R_AARCH64_TLSIE_MOVW_GOTTPREL_G0_NC", None, UNLINKED, G0, Unchecked).got(),
    new(541, "R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21", None, IE_PAGE, Adrp, Signed(33)).got().lift(ABS64),
    new(542, "R_AARCH64_TLSIE_LD64_GOTTPREL_LO12_NC", None, IE_LOW, LO12_8, Unchecked).got().lift(ABS64),
    new(543, "R_AARCH64_TLSIE_LD_GOTTPREL_PREL19", None, IE, Imm19, Signed(21)).got().lift(ABS64),
    new(544, "R_AARCH64_TLSLE_MOVW_TPREL_G2", None, FROM_THREAD, S2, Signed(49)).lift(ABS64),
    new(545, "R_AARCH64_TLSLE_MOVW_TPREL_G1", None, FROM_THREAD, S1, Signed(33)).lift(ABS64),
    new(546, "R_AARCH64_TLSLE_MOVW_TPREL_G1_NC", None, FROM_THREAD, G1, Unchecked).lift(ABS64),
    new(547, "R_AARCH64_TLSLE_MOVW_TPREL_G0", None, FROM_THREAD, S0, Signed(17)).lift(ABS64),
    new(548, "R_AARCH64_TLSLE_MOVW_TPREL_G0_NC", None, FROM_THREAD, G0, Unchecked).lift(ABS64),
    new(549, "R_AARCH64_TLSLE_ADD_TPREL_HI12", None, FROM_THREAD, HI12, Unsigned(24)).lift(ABS64),
    new(550, "R_AARCH64_TLSLE_ADD_TPREL_LO12", None, FROM_THREAD, LO12, Unsigned(12)).lift(ABS64),
    new(551, "R_AARCH64_TLSLE_ADD_TPREL_LO12_NC", None, FROM_THREAD, LO12, Unchecked).lift(ABS64),
    new(552, "R_AARCH64_TLSLE_LDST8_TPREL_LO12", None, FROM_THREAD, LO12, Unsigned(12)).lift(ABS64),
    new(553, "R_AARCH64_TLSLE_LDST8_TPREL_LO12_NC", None, FROM_THREAD, LO12, Unchecked).lift(ABS64),
    new(554, "R_AARCH64_TLSLE_LDST16_TPREL_LO12", None, FROM_THREAD, LO12_2, Unsigned(12)).lift(ABS64),
    new(555, "R_AARCH64_TLSLE_LDST16_TPREL_LO12_NC", None, FROM_THREAD, LO12_2, Unchecked).lift(ABS64),
    new(556, "R_AARCH64_TLSLE_LDST32_TPREL_LO12", None, FROM_THREAD, LO12_4, Unsigned(12)).lift(ABS64),
    new(557, "R_AARCH64_TLSLE_LDST32_TPREL_LO12_NC", None, FROM_THREAD, LO12_4, Unchecked).lift(ABS64),
    new(558, "R_AARCH64_TLSLE_LDST64_TPREL_LO12", None, FROM_THREAD, LO12_8, Unsigned(12)).lift(ABS64),
    new(559, "R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC", None, FROM_THREAD, LO12_8, Unchecked).lift(ABS64),
    new(560, "R_AARCH64_TLSDESC_LD_PREL19", None, DESC, Imm19, Signed(21)).got().lift(ABS64),
    new(561, "R_AARCH64_TLSDESC_ADR_PREL21", None, DESC, Adr, Signed(21)).got().lift(ABS64),
    new(562, "R_AARCH64_TLSDESC_ADR_PAGE21", None, DESC_PAGE, Adrp, Signed(33)).got().lift(ABS64),
    new(563, "R_AARCH64_TLSDESC_LD64_LO12", None, DESC_LOW, LO12_8, Unchecked).got().lift(ABS64),
    new(564, "R_AARCH64_TLSDESC_ADD_LO12", None, DESC_LOW, LO12, Unchecked).got().lift(ABS64),
    new(565, "R_AARCH64_TLSDESC_OFF_G1", None, UNLINKED, S1, Signed(33)).got(),
    new(566, "R_AARCH64_TLSDESC_OFF_G0_NC", None, UNLINKED, G0, Unchecked).got(),
    new(567, "R_AARCH64_TLSDESC_LDR", None, MARKER, Marker, Unchecked).lift(ABS64),
    new(568, "R_AARCH64_TLSDESC_ADD", None, MARKER, Marker, Unchecked).lift(ABS64),
    new(569, "R_AARCH64_TLSDESC_CALL", None, MARKER, Marker, Unchecked).lift(ABS64),
    new(570, "R_AARCH64_TLSLE_LDST128_TPREL_LO12", None, FROM_THREAD, LO12_16, Unsigned(12)).lift(ABS64),
    new(571, "R_AARCH64_TLSLE_LDST128_TPREL_LO12_NC", None, FROM_THREAD, LO12_16, Unchecked).lift(ABS64),
    new(572, "R_AARCH64_TLSLD_LDST128_DTPREL_LO12", None, IN_BLOCK, LO12_16, Unsigned(12)).lift(ABS64),
    new(573, "R_AARCH64_TLSLD_LDST128_DTPREL_LO12_NC", None, IN_BLOCK, LO12_16, Unchecked).lift(ABS64),
    new(580, "R_AARCH64_AUTH_ABS64", None, Authenticated, Data(64), Unchecked),
    new(581, "R_AARCH64_AUTH_MOVW_GOTOFF_G0", None, Authenticated, S0, Signed(17)).got(),
    new(582, "R_AARCH64_AUTH_MOVW_GOTOFF_G0_NC", None, Authenticated, G0, Unchecked).got(),
    new(583, "R_AARCH64_AUTH_MOVW_GOTOFF_G1", None, Authenticated, S1, Signed(33)).got(),
    new(584, "R_AARCH64_AUTH_MOVW_GOTOFF_G1_NC", None, Authenticated, G1, Unchecked).got(),
    new(585, "R_AARCH64_AUTH_MOVW_GOTOFF_G2", None, Authenticated, S2, Signed(49)).got(),
    new(586, "R_AARCH64_AUTH_MOVW_GOTOFF_G2_NC", None, Authenticated, G2, Unchecked).got(),
    new(587, "R_AARCH64_AUTH_MOVW_GOTOFF_G3", None, Authenticated, S3, Unchecked).got(),
    new(588, "R_AARCH64_AUTH_GOT_LD_PREL19", None, Authenticated, Imm19, Signed(21)).got(),
    new(589, "R_AARCH64_AUTH_LD64_GOTOFF_LO15", None, Authenticated, LO15, Unsigned(15)).got(),
    new(590, "R_AARCH64_AUTH_ADR_GOT_PAGE", None, Authenticated, Adrp, Signed(33)).got(),
    new(591, "R_AARCH64_AUTH_LD64_GOT_LO12_NC", None, Authenticated, LO12_8, Unchecked).got(),
    new(592, "R_AARCH64_AUTH_LD64_GOTPAGE_LO15", None, Authenticated, LO15, Unsigned(15)).got(),
    new(593, "R_AARCH64_AUTH_GOT_ADD_LO12_NC", None, Authenticated, LO12, Unchecked).got(),
    new(594, "R_AARCH64_AUTH_GOT_ADR_PREL_LO21", None, Authenticated, Adr, Signed(21)).got(),
    new(595, "R_AARCH64_AUTH_TLSDESC_ADR_PAGE21", None, Authenticated, Adrp, Signed(33)).got().tls(),
    new(596, "R_AARCH64_AUTH_TLSDESC_LD64_LO12", None, Authenticated, LO12_8, Unchecked).got().tls(),
    new(597, "R_AARCH64_AUTH_TLSDESC_ADD_LO12", None, Authenticated, LO12, Unchecked).got().tls(),
    new(1024, "R_AARCH64_COPY", None, Dynamic, Empty, Unchecked),
    new(1025, "R_AARCH64_GLOB_DAT", None, Dynamic, Data(64), Unchecked),
    new(1026, "R_AARCH64_JUMP_SLOT", None, Dynamic, Data(64), Unchecked),
    new(1027, "R_AARCH64_RELATIVE", None, Dynamic, Data(64), Unchecked),
    new(1028, "R_AARCH64_TLS_DTPMOD64", None, MODULE, Data(64), Unchecked).lift(ABS64),
    new(1029, "R_AARCH64_TLS_DTPREL64", None, IN_BLOCK, Data(64), Unchecked).lift(ABS64),
    new(1030, "R_AARCH64_TLS_TPREL64", None, FROM_THREAD, Data(64), Unchecked).lift(ABS64),
    new(1031, "R_AARCH64_TLSDESC", None, UNLINKED, Pair, Unchecked),
    new(1032, "R_AARCH64_IRELATIVE", None, Dynamic, Data(64), Unchecked).indirect(),
    new(1041, "R_AARCH64_AUTH_RELATIVE", None, Dynamic, Data(64), Unchecked),
    new(1042, "R_AARCH64_AUTH_GLOB_DAT", None, Dynamic, Data(64), Unchecked),
    new(1043, "R_AARCH64_AUTH_TLSDESC", None, UNLINKED, Pair, Unchecked),
    new(1044, "R_AARCH64_AUTH_IRELATIVE", None, Dynamic, Data(64), Unchecked).indirect(),
];
