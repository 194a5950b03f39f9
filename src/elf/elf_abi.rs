//! ELF records as plain integers, and the ELF constants in use.
//!
//! Only 64-bit little-endian ELF is supported, so nothing is generic over class or byte order.

use object::elf;
pub(crate) use object::elf::{FileHeader64, Rela64, SectionHeader64, Sym64};
pub(crate) use object::endian::LittleEndian as LE;

pub(crate) type Header = FileHeader64<LE>;
pub(crate) type RawSection = SectionHeader64<LE>;
pub(crate) type RawSymbol = Sym64<LE>;
pub(crate) type RawRela = Rela64<LE>;

pub(crate) const HEADER_SIZE: u64 = 64;
pub(crate) const SECTION_SIZE: u64 = 64;
pub(crate) const SYMBOL_SIZE: u64 = 24;
pub(crate) const RELA_SIZE: u64 = 24;

pub(crate) const EM_386: u16 = elf::EM_386.0;
pub(crate) const EM_X86_64: u16 = elf::EM_X86_64.0;
pub(crate) const EM_AARCH64: u16 = elf::EM_AARCH64.0;

/// The machine of this process.
#[cfg(target_arch = "x86_64")]
pub(crate) const HOST_MACHINE: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
pub(crate) const HOST_MACHINE: u16 = EM_AARCH64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("slabjit loads objects for x86-64 and AArch64 only");

pub(crate) const SHT_NULL: u32 = elf::SHT_NULL.0;
pub(crate) const SHT_PROGBITS: u32 = elf::SHT_PROGBITS.0;
pub(crate) const SHT_SYMTAB: u32 = elf::SHT_SYMTAB.0;
pub(crate) const SHT_STRTAB: u32 = elf::SHT_STRTAB.0;
pub(crate) const SHT_RELA: u32 = elf::SHT_RELA.0;
pub(crate) const SHT_NOTE: u32 = elf::SHT_NOTE.0;
pub(crate) const SHT_NOBITS: u32 = elf::SHT_NOBITS.0;
pub(crate) const SHT_REL: u32 = elf::SHT_REL.0;
pub(crate) const SHT_INIT_ARRAY: u32 = elf::SHT_INIT_ARRAY.0;
pub(crate) const SHT_FINI_ARRAY: u32 = elf::SHT_FINI_ARRAY.0;
pub(crate) const SHT_PREINIT_ARRAY: u32 = elf::SHT_PREINIT_ARRAY.0;
pub(crate) const SHT_GROUP: u32 = elf::SHT_GROUP.0;
pub(crate) const SHT_SYMTAB_SHNDX: u32 = elf::SHT_SYMTAB_SHNDX.0;
pub(crate) const SHT_RELR: u32 = elf::SHT_RELR.0;
pub(crate) const SHT_CREL: u32 = elf::SHT_CREL.0;
pub(crate) const SHT_ANDROID_REL: u32 = elf::SHT_ANDROID_REL.0;
pub(crate) const SHT_ANDROID_RELA: u32 = elf::SHT_ANDROID_RELA.0;

/// x86-64 psABI, "Special Sections".
pub(crate) const SHT_X86_64_UNWIND: u32 = 0x7000_0001;

pub(crate) const SHF_WRITE: u64 = elf::SHF_WRITE.0;
pub(crate) const SHF_ALLOC: u64 = elf::SHF_ALLOC.0;
pub(crate) const SHF_EXECINSTR: u64 = elf::SHF_EXECINSTR.0;
pub(crate) const SHF_MERGE: u64 = elf::SHF_MERGE.0;
pub(crate) const SHF_STRINGS: u64 = elf::SHF_STRINGS.0;
pub(crate) const SHF_INFO_LINK: u64 = elf::SHF_INFO_LINK.0;
pub(crate) const SHF_LINK_ORDER: u64 = elf::SHF_LINK_ORDER.0;
pub(crate) const SHF_GROUP: u64 = elf::SHF_GROUP.0;
pub(crate) const SHF_TLS: u64 = elf::SHF_TLS.0;
pub(crate) const SHF_COMPRESSED: u64 = elf::SHF_COMPRESSED.0;
pub(crate) const SHF_GNU_RETAIN: u64 = elf::SHF_GNU_RETAIN.0;
pub(crate) const SHF_EXCLUDE: u64 = elf::SHF_EXCLUDE.0;
pub(crate) const SHF_X86_64_LARGE: u64 = 0x1000_0000;

pub(crate) const SHN_UNDEF: u16 = elf::SHN_UNDEF.0;
pub(crate) const SHN_LORESERVE: u16 = elf::SHN_LORESERVE;
pub(crate) const SHN_ABS: u16 = elf::SHN_ABS.0;
pub(crate) const SHN_COMMON: u16 = elf::SHN_COMMON.0;
pub(crate) const SHN_XINDEX: u16 = elf::SHN_XINDEX.0;

pub(crate) const STB_LOCAL: u8 = elf::STB_LOCAL.0;
pub(crate) const STB_GLOBAL: u8 = elf::STB_GLOBAL.0;
pub(crate) const STB_WEAK: u8 = elf::STB_WEAK.0;
pub(crate) const STB_GNU_UNIQUE: u8 = elf::STB_GNU_UNIQUE.0;

pub(crate) const STT_NOTYPE: u8 = elf::STT_NOTYPE.0;
pub(crate) const STT_OBJECT: u8 = elf::STT_OBJECT.0;
pub(crate) const STT_FUNC: u8 = elf::STT_FUNC.0;
pub(crate) const STT_SECTION: u8 = elf::STT_SECTION.0;
pub(crate) const STT_FILE: u8 = elf::STT_FILE.0;
pub(crate) const STT_COMMON: u8 = elf::STT_COMMON.0;
pub(crate) const STT_TLS: u8 = elf::STT_TLS.0;
pub(crate) const STT_GNU_IFUNC: u8 = elf::STT_GNU_IFUNC.0;

pub(crate) const STV_INTERNAL: u8 = elf::STV_INTERNAL.0;
pub(crate) const STV_HIDDEN: u8 = elf::STV_HIDDEN.0;

pub(crate) const GRP_COMDAT: u32 = elf::GRP_COMDAT.0;

/// A section header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub name: u32,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub align: u64,
    pub entry_size: u64,
}

impl SectionHeader {
    pub(crate) fn decode(raw: &RawSection) -> Self {
        Self {
            name: raw.sh_name.get(LE),
            kind: raw.sh_type.get(LE).0,
            flags: raw.sh_flags.get(LE).0,
            address: raw.sh_addr.get(LE),
            offset: raw.sh_offset.get(LE),
            size: raw.sh_size.get(LE),
            link: raw.sh_link.get(LE),
            info: raw.sh_info.get(LE),
            align: raw.sh_addralign.get(LE),
            entry_size: raw.sh_entsize.get(LE),
        }
    }

    pub(crate) fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether it holds relocations, in any encoding.
    pub(crate) fn is_relocation(&self) -> bool {
        matches!(self.kind, SHT_RELA | SHT_REL | SHT_CREL | SHT_ANDROID_RELA | SHT_ANDROID_REL)
    }

    /// Returns whether the file has bytes for it.
    pub(crate) fn has_contents(&self) -> bool {
        self.kind != SHT_NOBITS && self.kind != SHT_NULL
    }
}

/// A symbol, decoded; `shndx` is the raw 16-bit field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub name: u32,
    pub binding: u8,
    pub kind: u8,
    pub other: u8,
    pub shndx: u16,
    pub value: u64,
    pub size: u64,
}

impl Symbol {
    pub(crate) fn decode(raw: &RawSymbol) -> Self {
        Self {
            name: raw.st_name.get(LE),
            binding: raw.st_info.0 >> 4,
            kind: raw.st_info.0 & 0xf,
            other: raw.st_other.0,
            shndx: raw.st_shndx.get(LE).0,
            value: raw.st_value.get(LE),
            size: raw.st_size.get(LE),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.binding == STB_LOCAL
    }

    pub(crate) fn visibility(&self) -> u8 {
        self.other & 3
    }

    pub(crate) fn is_common(&self) -> bool {
        self.kind == STT_COMMON || self.shndx == SHN_COMMON
    }
}

/// Field offsets for patching in place.
pub(crate) mod field {
    pub(crate) const E_SHOFF: u64 = 40;
    pub(crate) const E_SHNUM: u64 = 60;
    pub(crate) const SH_NAME: u64 = 0;
    pub(crate) const SH_TYPE: u64 = 4;
    pub(crate) const SH_FLAGS: u64 = 8;
    pub(crate) const SH_OFFSET: u64 = 24;
    pub(crate) const SH_SIZE: u64 = 32;
    pub(crate) const SH_ADDRALIGN: u64 = 48;
    pub(crate) const SH_ENTSIZE: u64 = 56;
    pub(crate) const ST_OTHER: u64 = 5;
    pub(crate) const ST_SHNDX: u64 = 6;
    pub(crate) const ST_VALUE: u64 = 8;
    pub(crate) const ST_SIZE: u64 = 16;
}
