// References in the terms of the ABI, shown to the caller before and after addresses are known.
#include "internal.h"

#include "llvm/BinaryFormat/ELF.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

/// The relocation that means the same as an edge: what is computed, and how wide the field is.
uint32_t relocationOf(const Edge &E, Triple::ArchType Arch, int64_t &Addend) {
  if (Arch != Triple::x86_64 && Arch != Triple::aarch64)
    return SLABJIT_OTHER_KIND;
  if (Arch == Triple::aarch64)
    switch (E.getKind()) {
    case aarch64::Pointer64: return ELF::R_AARCH64_ABS64;
    case aarch64::Pointer32: return ELF::R_AARCH64_ABS32;
    case aarch64::Delta64: return ELF::R_AARCH64_PREL64;
    case aarch64::Delta32: return ELF::R_AARCH64_PREL32;
    case aarch64::NegDelta64: return SLABJIT_NEGATIVE_DELTA64;
    case aarch64::NegDelta32: return SLABJIT_NEGATIVE_DELTA32;
    case aarch64::Branch26PCRel: return ELF::R_AARCH64_CALL26;
    SLABJIT_IF_LLVM17(case aarch64::TestAndBranch14PCRel: return ELF::R_AARCH64_TSTBR14;)
    SLABJIT_IF_LLVM17(case aarch64::CondBranch19PCRel: return ELF::R_AARCH64_CONDBR19;)
    case aarch64::MoveWide16: return ELF::R_AARCH64_MOVW_UABS_G0_NC;
    case aarch64::LDRLiteral19: return ELF::R_AARCH64_LD_PREL_LO19;
    SLABJIT_IF_LLVM17(case aarch64::ADRLiteral21: return ELF::R_AARCH64_ADR_PREL_LO21;)
    case aarch64::Page21: return ELF::R_AARCH64_ADR_PREL_PG_HI21;
    case aarch64::PageOffset12: return ELF::R_AARCH64_ADD_ABS_LO12_NC;
    SLABJIT_IF_LLVM20(case aarch64::GotPageOffset15: return ELF::R_AARCH64_LD64_GOTPAGE_LO15;)
    default: return SLABJIT_OTHER_KIND;
    }
  switch (E.getKind()) {
  case x86_64::Pointer64: return ELF::R_X86_64_64;
  case x86_64::Pointer32: return ELF::R_X86_64_32;
  case x86_64::Pointer32Signed: return ELF::R_X86_64_32S;
  SLABJIT_IF_LLVM16(case x86_64::Pointer16: return ELF::R_X86_64_16;)
  SLABJIT_IF_LLVM17(case x86_64::Pointer8: return ELF::R_X86_64_8;)
  case x86_64::Delta64: return ELF::R_X86_64_PC64;
  case x86_64::Delta32: return ELF::R_X86_64_PC32;
  SLABJIT_IF_LLVM20(case x86_64::Delta16: return ELF::R_X86_64_PC16;)
  SLABJIT_IF_LLVM19(case x86_64::Delta8: return ELF::R_X86_64_PC8;)
  case x86_64::NegDelta64: return SLABJIT_NEGATIVE_DELTA64;
  case x86_64::NegDelta32: return SLABJIT_NEGATIVE_DELTA32;
  case x86_64::Delta64FromGOT: return ELF::R_X86_64_GOTOFF64;
  // These count from the end of the field.
  case x86_64::BranchPCRel32:
  case x86_64::BranchPCRel32ToPtrJumpStub:
  case x86_64::BranchPCRel32ToPtrJumpStubBypassable: Addend -= 4; return ELF::R_X86_64_PLT32;
  case x86_64::PCRel32:
  case x86_64::PCRel32GOTLoadRelaxable:
  case x86_64::PCRel32GOTLoadREXRelaxable: Addend -= 4; return ELF::R_X86_64_PC32;
  default: return SLABJIT_OTHER_KIND;
  }
}

slabjit_edge describe(const slabjit::Link &L, const Edge &E, Block &B, Triple::ArchType Arch, bool Final) {
  slabjit_edge R{};
  R.addend = E.getAddend();
  R.relocation = SLABJIT_OTHER_KIND;
  if (E.isRelocation())
    R.relocation = relocationOf(E, Arch, R.addend);
  R.offset = E.getOffset();
  auto &Target = E.getTarget();
  auto Name = slabjit::symbolName(Target);
  R.symbol = Name.data();
  R.symbol_len = Name.size();
  R.target = Target.getAddress().getValue();
  R.place = SLABJIT_AT_ADDRESS;
  if (Final && Target.isDefined())
    R.target_block = Target.getBlock().getAddress().getValue();
  if (Final || Target.isAbsolute())
    return R;
  if (!Target.isDefined())
    R.place = SLABJIT_ELSEWHERE;
  else if (&Target.getBlock() == &B) {
    R.place = SLABJIT_SAME_BLOCK;
    R.target = Target.getOffset();
  } else {
    bool Apart = L.Apart.count(&B.getSection()) || L.Apart.count(&Target.getBlock().getSection());
    R.place = Apart ? SLABJIT_ELSEWHERE : SLABJIT_OTHER_BLOCK;
  }
  return R;
}

slabjit_block describe(const slabjit::Link::Source &Source) {
  slabjit_block R{};
  auto &B = *Source.Block;
  R.section = Source.Section.data();
  R.section_len = Source.Section.size();
  R.origin = Source.Origin;
  R.size = B.getSize();
  R.executable = (B.getSection().getMemProt() & orc::MemProt::Exec) != orc::MemProt::None;
  return R;
}

/// Calls `Visit` with each block that refers to something, the block as the caller sees it, and its edges likewise,
/// some at a time: what a large block's take together would not stay in the cache.
template <typename Visitor> void visitReferences(slabjit::Link &L, LinkGraph &G, bool Final, Visitor Visit) {
  constexpr size_t AtATime = 64;
  auto Arch = G.getTargetTriple().getArch();
  SmallVector<slabjit_edge, AtATime> Shown;
  SmallVector<Edge *, AtATime> Edges;
  for (auto &Source : L.Referring) {
    auto *B = Source.Block;
    auto Described = describe(Source);
    for (auto I = B->edges().begin(), End = B->edges().end(); I != End;) {
      Shown.clear();
      Edges.clear();
      for (; I != End && Edges.size() < AtATime; ++I) {
        Shown.push_back(describe(L, *I, *B, Arch, Final));
        Edges.push_back(&*I);
      }
      Visit(*B, Described, Shown, Edges);
    }
  }
}

Block *makeRoom(LinkGraph &G, Section &Sec, uint64_t Size) {
  return Size ? &slabjit::createZeros(G, Sec, Size, 16) : nullptr;
}

Section &sectionFor(LinkGraph &G, StringRef Name, orc::MemProt Prot) {
  auto *Sec = G.findSectionByName(Name);
  return Sec ? *Sec : G.createSection(Name, Prot);
}

/// Blocks are laid out by section, in the order of the file; within a section, by size where no address tells.
Section *firstCode(LinkGraph &G) {
  Section *First = nullptr;
  for (auto &Sec : G.sections())
    if ((Sec.getMemProt() & orc::MemProt::Exec) != orc::MemProt::None && Sec.blocks_size() != 0 &&
        (!First || Sec.getOrdinal() < First->getOrdinal()))
      First = &Sec;
  return First;
}

} // namespace

Error slabjit::surveyReferences(Link &L, LinkGraph &G) {
  uint64_t Bytes = 0;
  for (auto *Sec : slabjit::sectionsInOrder(G))
    for (auto *B : slabjit::blocksInOrder(*Sec)) {
      Bytes += B->getSize() + B->getAlignment() - 1;
      if (slabjit::isAllocated(*Sec) && !B->isZeroFill() && !B->edges_empty())
        L.Referring.push_back({B, slabjit::sectionName(L, *B), B->getContent().data()});
    }
  visitReferences(L, G, false, [&](Block &, slabjit_block &Shown, ArrayRef<slabjit_edge> Edges, ArrayRef<Edge *>) {
    L.Callbacks->survey(L.Object, Bytes, &Shown, Edges.data(), Edges.size());
  });
  uint64_t Head = 0, Tail = 0, Data = 0;
  L.Callbacks->reserve(L.Object, &Head, &Tail, &Data);
  auto *First = Head ? firstCode(G) : nullptr;
  if (First)
    L.Rooms[0] = makeRoom(G, *First, Head);
  if (Tail)
    L.Rooms[1] = makeRoom(G, sectionFor(G, "$__slabjit_bridges", orc::MemProt::Read | orc::MemProt::Exec), Tail);
  if (Data)
    L.Rooms[2] = makeRoom(G, sectionFor(G, "$__slabjit_slots", orc::MemProt::Read), Data);
  return Error::success();
}

Error slabjit::checkReferences(Link &L, LinkGraph &G) {
  slabjit_room Rooms[3] = {};
  for (size_t I = 0; I != 3; ++I)
    if (auto *B = L.Rooms[I])
      Rooms[I] = {reinterpret_cast<uint8_t *>(B->getMutableContent(G).data()), B->getAddress().getValue(),
                  B->getSize()};
  uint64_t GOT = 0;
  if (auto *Sec = G.findSectionByName("$__GOT"))
    if (SectionRange Range(*Sec); !Range.empty())
      GOT = Range.getStart().getValue();
  L.Callbacks->settled(L.Object, Rooms, GOT);
  auto Check = [&](Block &B, slabjit_block &Shown, MutableArrayRef<slabjit_edge> Edges, ArrayRef<Edge *> Graph) {
    Shown.address = B.getAddress().getValue();
    Shown.content = reinterpret_cast<uint8_t *>(B.getMutableContent(G).data());
    L.Callbacks->check(L.Object, &Shown, Edges.data(), Edges.size());
    for (size_t I = 0; I != Edges.size(); ++I)
      if (Edges[I].drop)
        Graph[I]->setKind(Edge::KeepAlive);
  };
  visitReferences(L, G, true, Check);
  if (L.Callbacks->checked(L.Object) != 0)
    return make_error<StringError>("slabjit: references are out of range", inconvertibleErrorCode());
  return Error::success();
}
