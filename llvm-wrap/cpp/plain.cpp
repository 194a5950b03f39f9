// Graphs of plain objects, made without LLVM's builder, which reads each header and each name several times. What that
// makes of an object is in LLVM's ELFLinkGraphBuilder.h (graphifySections, graphifySymbols); compare.cpp compares both.
#include "internal.h"

#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Object/ELFTypes.h"
#include "llvm/Support/Endian.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

#if SLABJIT_KNOWS_GRAPHS

namespace {

using ELFT = object::ELF64LE;

/// Blocks that share a section of the graph have addresses until there are final ones: the number of the object's
/// section times this, so that they keep its order, and none reaches into the next. Others have 0, as LLVM's.
constexpr uint64_t Span = uint64_t(1) << 40;
/// So that there are that many.
constexpr uint64_t MostSections = uint64_t(1) << 22;

/// The kind of edge that JITLink makes of a relocation (ELF_x86_64.cpp, addSingleRelocation), or Edge::Invalid.
Edge::Kind kindOnX86_64(uint32_t Relocation) {
  switch (Relocation) {
  case ELF::R_X86_64_PC32:
    return x86_64::Delta32;
  case ELF::R_X86_64_PC64:
    return x86_64::Delta64;
  case ELF::R_X86_64_32:
    return x86_64::Pointer32;
  case ELF::R_X86_64_32S:
    return x86_64::Pointer32Signed;
  case ELF::R_X86_64_64:
    return x86_64::Pointer64;
  case ELF::R_X86_64_PLT32:
    return x86_64::BranchPCRel32;
  case ELF::R_X86_64_GOTPCREL:
    return x86_64::RequestGOTAndTransformToDelta32;
  case ELF::R_X86_64_GOTPCRELX:
    return x86_64::RequestGOTAndTransformToPCRel32GOTLoadRelaxable;
  case ELF::R_X86_64_REX_GOTPCRELX:
    return x86_64::RequestGOTAndTransformToPCRel32GOTLoadREXRelaxable;
  default:
    return Edge::Invalid;
  }
}

bool wantsGOTOnX86_64(Edge::Kind Kind) {
  return Kind == x86_64::RequestGOTAndTransformToDelta32 ||
         Kind == x86_64::RequestGOTAndTransformToPCRel32GOTLoadRelaxable ||
         Kind == x86_64::RequestGOTAndTransformToPCRel32GOTLoadREXRelaxable;
}

/// What it adds to the addend there: the field of a call is counted from its end, and GOT loads have none.
int64_t addendOnX86_64(uint32_t Relocation, int64_t Addend) {
  switch (Relocation) {
  case ELF::R_X86_64_PLT32:
    return Addend + 4;
  case ELF::R_X86_64_GOTPCRELX:
  case ELF::R_X86_64_REX_GOTPCRELX:
    return 0;
  default:
    return Addend;
  }
}

/// The same of ELF_aarch64.cpp, which looks at the instructions that load and store.
Edge::Kind kindOnAArch64(uint32_t Relocation, ArrayRef<char> At) {
  auto IfAccessOf = [&](unsigned Shift) -> Edge::Kind {
    if (At.size() < 4)
      return Edge::Invalid;
    auto Instruction = support::endian::read32le(At.data());
    bool Fits = aarch64::isLoadStoreImm12(Instruction) && aarch64::getPageOffset12Shift(Instruction) == Shift;
    return Fits ? Edge::Kind(aarch64::PageOffset12) : Edge::Kind(Edge::Invalid);
  };
  switch (Relocation) {
  case ELF::R_AARCH64_CALL26:
  case ELF::R_AARCH64_JUMP26:
    return aarch64::Branch26PCRel;
  case ELF::R_AARCH64_ADR_PREL_PG_HI21:
    return aarch64::Page21;
  case ELF::R_AARCH64_ADD_ABS_LO12_NC:
    return aarch64::PageOffset12;
  case ELF::R_AARCH64_LDST8_ABS_LO12_NC:
    return IfAccessOf(0);
  case ELF::R_AARCH64_LDST16_ABS_LO12_NC:
    return IfAccessOf(1);
  case ELF::R_AARCH64_LDST32_ABS_LO12_NC:
    return IfAccessOf(2);
  case ELF::R_AARCH64_LDST64_ABS_LO12_NC:
    return IfAccessOf(3);
  case ELF::R_AARCH64_LDST128_ABS_LO12_NC:
    return IfAccessOf(4);
  case ELF::R_AARCH64_ABS32:
    return aarch64::Pointer32;
  case ELF::R_AARCH64_ABS64:
    return aarch64::Pointer64;
  case ELF::R_AARCH64_PREL32:
    return aarch64::Delta32;
  case ELF::R_AARCH64_PREL64:
    return aarch64::Delta64;
  case ELF::R_AARCH64_ADR_GOT_PAGE:
    return aarch64::RequestGOTAndTransformToPage21;
  case ELF::R_AARCH64_LD64_GOT_LO12_NC:
    return aarch64::RequestGOTAndTransformToPageOffset12;
  default:
    return Edge::Invalid;
  }
}

bool wantsGOTOnAArch64(Edge::Kind Kind) {
  return Kind == aarch64::RequestGOTAndTransformToPage21 || Kind == aarch64::RequestGOTAndTransformToPageOffset12;
}

/// Reads an object, and gives up at whatever it does not know.
class Plain {
public:
  Plain(MemoryBufferRef Object, slabjit::Link &Link, slabjit::NamedSymbols &Named)
      : Bytes(Object.getBuffer()), Name(Object.getBufferIdentifier()), Link(Link), Named(Named) {}

  std::unique_ptr<LinkGraph> build() {
    if (!readHeaders())
      return nullptr;
    // Not freed at the end of the process, where objects may still be linked.
    static const Triple &X86_64 = *new Triple("x86_64-unknown-linux"), &AArch64 = *new Triple("aarch64-unknown-linux");
    G = slabjit::emptyGraph(Name, IsAArch64 ? AArch64 : X86_64,
                            IsAArch64 ? aarch64::getEdgeKindName : x86_64::getEdgeKindName);
    Blocks.resize(Headers.size());
    for (size_t I = 0; I != Headers.size(); ++I)
      if (!addSection(I))
        return nullptr;
    if (!addSymbols())
      return nullptr;
    for (auto &Header : Headers)
      if (Header.sh_type == ELF::SHT_RELA && !addReferences(Header))
        return nullptr;
    return std::move(G);
  }

  /// The name of a section of an object of which a graph was built.
  static StringRef nameOf(StringRef Object, size_t Section) {
    auto At = [&](uint64_t Offset) { return Object.data() + Offset; };
    auto &File = *reinterpret_cast<const ELFT::Ehdr *>(Object.data());
    auto *Headers = reinterpret_cast<const ELFT::Shdr *>(At(File.e_shoff));
    return At(Headers[tableOfNames(File, *Headers)].sh_offset + Headers[Section].sh_name);
  }

private:
  static uint32_t tableOfNames(const ELFT::Ehdr &File, const ELFT::Shdr &First) {
    return File.e_shstrndx == ELF::SHN_XINDEX ? uint32_t(First.sh_link) : uint32_t(File.e_shstrndx);
  }

  /// Entries of a table that lies in the object.
  template <typename T> bool table(uint64_t At, uint64_t Count, ArrayRef<T> &Entries) const {
    if (At > Bytes.size() || Count > (Bytes.size() - At) / sizeof(T))
      return false;
    Entries = ArrayRef<T>(reinterpret_cast<const T *>(Bytes.data() + At), Count);
    return true;
  }

  /// The text at an offset of a string table.
  static bool text(StringRef Of, uint64_t At, StringRef &Text) {
    if (At >= Of.size())
      return false;
    Text = StringRef(Of.data() + At);
    return true;
  }

  /// A string table, which ends with a zero.
  bool strings(uint32_t Section, StringRef &Of) const {
    ArrayRef<char> Content;
    if (Section >= Headers.size() || Headers[Section].sh_type != ELF::SHT_STRTAB ||
        !table(Headers[Section].sh_offset, Headers[Section].sh_size, Content))
      return false;
    Of = StringRef(Content.data(), Content.size());
    return !Of.empty() && Of.back() == '\0';
  }

  bool readHeaders() {
    ArrayRef<ELFT::Ehdr> File;
    if (!table(0, 1, File) || !File[0].checkMagic() || File[0].getFileClass() != ELF::ELFCLASS64 ||
        File[0].getDataEncoding() != ELF::ELFDATA2LSB || File[0].e_type != ELF::ET_REL ||
        (File[0].e_machine != ELF::EM_X86_64 && File[0].e_machine != ELF::EM_AARCH64) ||
        File[0].e_shentsize != sizeof(ELFT::Shdr) || !table(File[0].e_shoff, 1, Headers))
      return false;
    // Numbers that have no room in the header are in the first section's (gABI, "Sections", e_shnum and e_shstrndx).
    uint64_t Count = File[0].e_shnum ? uint64_t(File[0].e_shnum) : uint64_t(Headers[0].sh_size);
    if (Count == 0 || Count > MostSections || !table(File[0].e_shoff, Count, Headers) ||
        !strings(tableOfNames(File[0], Headers[0]), Names))
      return false;
    IsAArch64 = File[0].e_machine == ELF::EM_AARCH64;
    for (size_t I = 0; I != Headers.size(); ++I)
      switch (Headers[I].sh_type) {
      case ELF::SHT_SYMTAB:
        if (SymbolTable)
          return false;
        SymbolTable = I;
        break;
      case ELF::SHT_SYMTAB_SHNDX:
        if (NumberTable || !table(Headers[I].sh_offset, Headers[I].sh_size / sizeof(ELFT::Word), Numbers))
          return false;
        NumberTable = I;
        break;
      case ELF::SHT_REL:
        return false;
      }
    return true;
  }

  /// The graph's section for one of the object. A section of a graph takes two tables of 512 bytes and more, which many
  /// passes go through, and an object may have thousands. All of one protection are one here, but for those that
  /// JITLink or the caller look for by name, or that may lie elsewhere.
  Section &sectionFor(const ELFT::Shdr &Header, StringRef Name, MemProt Prot, bool &Shares) {
    Shares = Name.starts_with(".") && Name != ".eh_frame" &&
             (IsAArch64 || !(Header.sh_flags & ELF::SHF_X86_64_LARGE));
    if (!Shares) {
      auto *Own = G->findSectionByName(Name);
      return Own ? *Own : G->createSection(Name, Prot);
    }
    // Preparation leaves the object no section whose name begins like these.
    static const char *const Names[] = {"$__slabjit_r", "$__slabjit_rw", "$__slabjit_rx", "$__slabjit_rwx"};
    unsigned Index = static_cast<unsigned>(Prot) >> 1;
    if (!Common[Index])
      Common[Index] = &G->createSection(Names[Index], Prot);
    return *Common[Index];
  }

  /// Makes a block of a section. Sections without memory get none, and neither do the empty ones that assemblers always
  /// write, unless something refers to them. Nobody asks for the bounds of a section whose name begins with a dot.
  bool addSection(size_t I) {
    auto &Header = Headers[I];
    StringRef Section;
    if (Header.sh_name >= Names.size())
      return false;
    if (!(Header.sh_flags & ELF::SHF_ALLOC) || Header.sh_type == ELF::SHT_NULL || !text(Names, Header.sh_name, Section))
      return true;
    return (Header.sh_size == 0 && Section.starts_with(".")) || makeBlock(I);
  }

  bool makeBlock(size_t I) {
    auto &Header = Headers[I];
    StringRef Section;
    if (!(Header.sh_flags & ELF::SHF_ALLOC) || !text(Names, Header.sh_name, Section))
      return false;
    auto Prot = MemProt::Read;
    if (Header.sh_flags & ELF::SHF_EXECINSTR)
      Prot |= MemProt::Exec;
    if (Header.sh_flags & ELF::SHF_WRITE)
      Prot |= MemProt::Write;
    bool Shares;
    auto &In = sectionFor(Header, Section, Prot, Shares);
    if (In.getMemProt() != Prot || Header.sh_addr != 0 || Header.sh_size >= Span)
      return false;
    ExecutorAddr Address(Shares ? I * Span : 0);
    if (Header.sh_type == ELF::SHT_NOBITS) {
      Blocks[I] = &G->createZeroFillBlock(In, Header.sh_size, Address, Header.sh_addralign, 0);
      return true;
    }
    ArrayRef<char> Content;
    if (!table(Header.sh_offset, Header.sh_size, Content))
      return false;
    Blocks[I] = &G->createContentBlock(In, Content, Address, Header.sh_addralign, 0);
    return true;
  }

  bool addSymbols() {
    if (!SymbolTable)
      return true;
    auto &Header = Headers[SymbolTable];
    if (!table(Header.sh_offset, Header.sh_size / sizeof(ELFT::Sym), Table) || !strings(Header.sh_link, SymbolNames))
      return false;
    if (NumberTable && (Headers[NumberTable].sh_link != SymbolTable || Numbers.size() != Table.size()))
      return false;
    Symbols.resize(Table.size());
    for (size_t I = 1; I < Table.size(); ++I) {
      auto &S = Table[I];
      // Those of sections, when something refers to them.
      if (S.getType() == ELF::STT_FILE || (S.getType() == ELF::STT_SECTION && S.st_name == 0))
        continue;
      if (!addSymbol(I))
        return false;
    }
    return true;
  }

  bool addSymbol(size_t I) {
    auto &S = Table[I];
    StringRef Text;
    if (!text(SymbolNames, S.st_name, Text))
      return false;
    if (S.st_shndx == ELF::SHN_UNDEF) {
      bool IsWeak = S.getBinding() == ELF::STB_WEAK;
      if (!IsWeak && S.getBinding() != ELF::STB_GLOBAL)
        return false;
      Symbols[I] = &G->addExternalSymbol(Text, S.st_size, IsWeak);
      Named.push_back(Symbols[I]);
      return true;
    }
    size_t Of = S.st_shndx;
    if (Of == ELF::SHN_XINDEX && NumberTable)
      Of = Numbers[I];
    else if (Of >= ELF::SHN_LORESERVE)
      return false;
    if (Of >= Headers.size())
      return false;
    switch (S.getType()) {
    case ELF::STT_NOTYPE:
    case ELF::STT_FUNC:
    case ELF::STT_OBJECT:
    case ELF::STT_SECTION:
    case ELF::STT_TLS:
      break;
    default:
      return false;
    }
    // What is in no memory, nothing that has some may refer to.
    if (!(Headers[Of].sh_flags & ELF::SHF_ALLOC))
      return true;
    if (!Blocks[Of] && !makeBlock(Of))
      return false;
    auto &B = *Blocks[Of];
    if (S.st_value > B.getSize() || S.st_size > B.getSize() - S.st_value)
      return false;
    if (Text.empty()) {
      Symbols[I] = &G->addAnonymousSymbol(B, S.st_value, S.st_size, false, false);
      return true;
    }
    auto L = Linkage::Strong;
    auto In = Scope::Default;
    switch (S.getBinding()) {
    case ELF::STB_LOCAL:
      In = Scope::Local;
      break;
    case ELF::STB_GLOBAL:
      break;
    case ELF::STB_WEAK:
    case ELF::STB_GNU_UNIQUE:
      L = Linkage::Weak;
      break;
    default:
      return false;
    }
    if (S.getVisibility() == ELF::STV_INTERNAL)
      return false;
    if (S.getVisibility() == ELF::STV_HIDDEN && In == Scope::Default)
      In = Scope::Hidden;
    Symbols[I] = &G->addDefinedSymbol(B, S.st_value, Text, S.st_size, L, In, S.getType() == ELF::STT_FUNC, false);
    Named.push_back(Symbols[I]);
    return true;
  }

  bool addReferences(const ELFT::Shdr &Header) {
    if (Header.sh_info >= Headers.size())
      return false;
    // Those of what is in no memory.
    if (!(Headers[Header.sh_info].sh_flags & ELF::SHF_ALLOC))
      return true;
    auto *B = Blocks[Header.sh_info];
    ArrayRef<ELFT::Rela> References;
    if (!B || Header.sh_link != SymbolTable ||
        !table(Header.sh_offset, Header.sh_size / sizeof(ELFT::Rela), References))
      return false;
    for (auto &R : References) {
      auto Type = R.getType(false);
      if (!IsAArch64 && Type == ELF::R_X86_64_NONE)
        continue;
      auto Kind = IsAArch64 ? kindOnAArch64(Type, contentFrom(*B, R.r_offset)) : kindOnX86_64(Type);
      auto Addend = IsAArch64 ? int64_t(R.r_addend) : addendOnX86_64(Type, R.r_addend);
      size_t I = R.getSymbol(false);
      // A reference to nothing is one to an absolute symbol, which LLVM's builder makes.
      if (Kind == Edge::Invalid || I == 0 || I >= Symbols.size() || (!Symbols[I] && !addSymbol(I)) || !Symbols[I])
        return false;
      Link.WantsGOT |= IsAArch64 ? wantsGOTOnAArch64(Kind) : wantsGOTOnX86_64(Kind);
      B->addEdge(Kind, R.r_offset, *Symbols[I], Addend);
    }
    return true;
  }

  static ArrayRef<char> contentFrom(Block &B, uint64_t Offset) {
    bool IsInside = !B.isZeroFill() && Offset <= B.getSize();
    return IsInside ? B.getContent().drop_front(Offset) : ArrayRef<char>();
  }

  StringRef Bytes, Name, Names, SymbolNames;
  slabjit::Link &Link;
  slabjit::NamedSymbols &Named;
  bool IsAArch64 = false;
  ArrayRef<ELFT::Shdr> Headers;
  ArrayRef<ELFT::Sym> Table;
  /// Sections of symbols whose numbers have no room in the symbols.
  ArrayRef<ELFT::Word> Numbers;
  size_t SymbolTable = 0, NumberTable = 0;
  std::unique_ptr<LinkGraph> G;
  /// Sections of the graph by their protections.
  jitlink::Section *Common[4] = {};
  /// By the numbers of sections and of symbols.
  SmallVector<Block *, 32> Blocks;
  SmallVector<Symbol *, 32> Symbols;
};

} // namespace

std::unique_ptr<LinkGraph> slabjit::buildPlain(MemoryBufferRef Object, Link &L, NamedSymbols &Named) {
  auto Graph = Plain(Object, L, Named).build();
  L.IsPlain = Graph != nullptr;
  if (!Graph)
    Named.clear();
#ifdef SLABJIT_COMPARES_GRAPHS
  if (Graph)
    compareWithLLVMs(*Graph, Object);
#endif
  return Graph;
}

StringRef slabjit::sectionName(const Link &Link, const Block &B) {
  uint64_t Number = Link.IsPlain ? B.getAddress().getValue() / Span : 0;
  // The end that JITLink puts behind an unwind table has an address near the last.
  bool Shares = Number != 0 && Number < MostSections;
  return Shares ? Plain::nameOf(Link.Bytes, Number) : B.getSection().getName();
}

#else

std::unique_ptr<LinkGraph> slabjit::buildPlain(MemoryBufferRef, Link &, NamedSymbols &) { return nullptr; }

StringRef slabjit::sectionName(const Link &, const Block &B) { return B.getSection().getName(); }

#endif
