// What is done for every link beside JITLink's own passes: repairs of LLVM, and the caller is told addresses.
#include "internal.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

namespace {

/// What a GOT entry or a stub refers to: each is a block with one edge.
Symbol &behind(Symbol &S) { return S.getBlock().edges().begin()->getTarget(); }

/// JITLink up to 22 asks of a GOT load or a stub whether the target is in range of the field's address + 4, and then
/// makes a reference that counts from 4 bytes behind the field (x86_64.cpp, optimizeGOTAndStubAccesses).
bool relaxesTooFar(Block &B, Edge &E, Symbol &Target) {
  int64_t Distance = Target.getAddress() - (B.getAddress() + E.getOffset());
  return isInt<32>(Distance + 4) != isInt<32>(Distance - 4);
}

/// Takes references out of the reach of JITLink's relaxations that are wrong: what just does not reach, and calls and
/// jumps through the GOT. Up to 22 `call *f@GOTPCREL(%rip)` becomes a call with an absolute 32-bit field when `f` is
/// below 4 GiB, and jumps likewise, but calls are relative (llvm#190968). From 23 on it becomes a relative call with a
/// prefix: `data16 rex64 call *__tls_get_addr@GOTPCREL(%rip)`, as compilers write it, is then 66 48 67 e8. A REX before
/// a prefix means nothing, and AMD's processors take 66 e8 for a call with a field of 16 bits. Without relaxation a GOT
/// load is a Delta32 to the GOT entry.
void keepWhatMustNotRelax(slabjit::Link &Link) {
  for (auto &[B, Section, Origin] : Link.Referring)
    for (auto &E : B->edges()) {
      if (E.getKind() == x86_64::BranchPCRel32ToPtrJumpStubBypassable &&
          relaxesTooFar(*B, E, behind(behind(E.getTarget()))))
        E.setKind(x86_64::BranchPCRel32ToPtrJumpStub);
      if (E.getKind() != x86_64::PCRel32GOTLoadRelaxable && E.getKind() != x86_64::PCRel32GOTLoadREXRelaxable)
        continue;
      bool IsBranch = E.getOffset() >= 2 && static_cast<uint8_t>(B->getContent()[E.getOffset() - 2]) == 0xff;
      if (!IsBranch && !relaxesTooFar(*B, E, behind(E.getTarget())))
        continue;
      E.setKind(x86_64::Delta32);
      E.setAddend(E.getAddend() - 4);
    }
}

/// The field of a call or jump ends its instruction.
bool isBranch(Block &B, Edge &E) {
  auto At = [&](size_t Before) {
    return E.getOffset() < Before ? 0 : static_cast<uint8_t>(B.getContent()[E.getOffset() - Before]);
  };
  return (At(1) & 0xfe) == 0xe8 || (At(2) == 0x0f && (At(1) & 0xf0) == 0x80);
}

/// A branch to `f + 8` must not become one to 8 bytes behind the beginning of a stub for `f`, which JITLink makes of
/// it. It goes to `f` itself again; if that is too far, it is bridged or refused like others. On x86-64 the addend of
/// data that refers to a stub is 4 by JITLink's counting, as it counts from the end of the field.
Error pointPastStubs(LinkGraph &G) {
  bool IsAArch64 = G.getTargetTriple().isAArch64();
  auto *Stubs = G.findSectionByName(IsAArch64 ? aarch64::PLTTableManager::getSectionName()
                                              : x86_64::PLTTableManager::getSectionName());
  if (!Stubs)
    return Error::success();
  for (auto &Sec : G.sections()) {
    bool IsCode = (Sec.getMemProt() & MemProt::Exec) != MemProt::None;
    for (auto *B : Sec.blocks())
      for (auto &E : B->edges()) {
        bool ToStub = E.getKind() == (IsAArch64 ? Edge::Kind(aarch64::Branch26PCRel)
                                                : Edge::Kind(x86_64::BranchPCRel32ToPtrJumpStubBypassable));
        if (!ToStub || !E.getAddend() || !E.getTarget().isDefined() || &E.getTarget().getBlock().getSection() != Stubs)
          continue;
        if (!IsAArch64 && E.getAddend() == 4 && !(IsCode && isBranch(*B, E)))
          continue;
        E.setTarget(behind(behind(E.getTarget())));
        if (!IsAArch64)
          E.setKind(x86_64::BranchPCRel32);
      }
  }
  return Error::success();
}

/// References relative to `_GLOBAL_OFFSET_TABLE_` need no GOT entry. For an empty GOT, JITLink puts that symbol at
/// address 0, and for none at whichever block comes first, which may be a section far away (ELF_x86_64.cpp,
/// getOrCreateGOTSymbol). One entry gives it a place near the code.
Error giveGOTAPlace(LinkGraph &G) {
  auto IsGOT = [](Symbol *S) { return slabjit::symbolName(*S) == "_GLOBAL_OFFSET_TABLE_"; };
  if (llvm::none_of(G.external_symbols(), IsGOT))
    return Error::success();
  auto Name = x86_64::GOTTableManager::getSectionName();
  auto *GOT = G.findSectionByName(Name);
  if (!GOT)
    GOT = &G.createSection(Name, MemProt::Read);
  if (GOT->blocks_size() == 0) {
    static const char Entry[8] = {};
    G.createContentBlock(*GOT, ArrayRef<char>(Entry), ExecutorAddr(), sizeof(Entry), 0);
  }
  return Error::success();
}

/// LLVM 19 leaves `_GLOBAL_OFFSET_TABLE_` to others on AArch64; later ones put it where this does.
void placeGOTSymbol(LinkGraph &G) {
  Symbol *Wanted = nullptr;
  for (auto *S : G.external_symbols())
    if (slabjit::symbolName(*S) == "_GLOBAL_OFFSET_TABLE_")
      Wanted = S;
  auto *GOT = G.findSectionByName(aarch64::GOTTableManager::getSectionName());
  if (Wanted && GOT)
    slabjit::makeAbsolute(G, *Wanted, SectionRange(*GOT).getStart());
}

/// `__start_NAME` and `__stop_NAME`, which are the bounds of the object's section NAME.
void defineSectionBounds(LinkGraph &G) {
  SmallVector<Symbol *, 8> Externals(G.external_symbols().begin(), G.external_symbols().end());
  for (auto *S : Externals) {
    auto Name = slabjit::symbolName(*S);
    bool IsStart = Name.consume_front("__start_");
    if (!IsStart && !Name.consume_front("__stop_"))
      continue;
    if (auto *Sec = G.findSectionByName(Name)) {
      SectionRange Range(*Sec);
      slabjit::makeAbsolute(G, *S, IsStart ? Range.getStart() : Range.getEnd());
    }
  }
}

// LLVM's own tests link for i386 too (ci/llvm-suite), where kinds of edges have other numbers.
bool isX86_64(LinkGraph &G) { return G.getTargetTriple().getArch() == Triple::x86_64; }
bool isAArch64(LinkGraph &G) { return G.getTargetTriple().isAArch64(); }

Error beforeLayout(slabjit::Link &Link, LinkGraph &G) {
  if (auto Err = slabjit::makeIndirectFunctions(Link, G))
    return Err;
  if (isX86_64(G) || isAArch64(G)) {
    if (auto Err = giveGOTAPlace(G))
      return Err;
    if (auto Err = pointPastStubs(G))
      return Err;
  }
  if (auto Err = slabjit::orderBlocks(G, Link.Bytes))
    return Err;
  // Once it is settled which block is the first.
  slabjit::closeGapsInFrames(G);
  return slabjit::surveyReferences(Link, G);
}

void report(slabjit::Link &Link, LinkGraph &G) {
  SmallVector<slabjit_placed, 8> Symbols, Blocks;
  Symbols.reserve(Link.Symbols.size());
  for (auto &N : Link.Symbols)
    Symbols.push_back({N.Cookie, N.Symbol->getAddress().getValue(), N.Symbol->getSize()});
  Blocks.reserve(Link.Blocks.size());
  for (auto &R : Link.Blocks)
    Blocks.push_back({R.Cookie, R.Block->getAddress().getValue(), R.Block->getSize()});
  slabjit::reportSlots(G, Blocks);
  uint64_t Frames = 0, FrameBytes = 0;
  if (auto *Sec = G.findSectionByName(".eh_frame")) {
    SectionRange Range(*Sec);
    Frames = Range.getStart().getValue();
    FrameBytes = Range.getSize();
  }
  Link.Callbacks->placed(Link.Object, Symbols.data(), Symbols.size(), Blocks.data(), Blocks.size(), Frames, FrameBytes);
}

/// Tells the names of functions, and the blocks, that were not pruned.
void reportFunctionsAndBlocks(slabjit::Link &Link, LinkGraph &G) {
  // Small objects have few, and take no memory for them.
  SmallPtrSet<Block *, 16> Blocks;
  if (!Link.Functions.empty() || !Link.Located.empty())
    for (auto *B : G.blocks())
      Blocks.insert(B);
  SmallVector<slabjit_function, 8> Functions;
  for (auto &F : Link.Functions)
    if (Blocks.count(F.Block))
      Functions.push_back({F.Name.data(), F.Name.size(), (F.Block->getAddress() + F.Offset).getValue(), F.Bytes});
  Link.Callbacks->functions(Link.Object, Functions.data(), Functions.size());
  if (Link.Located.empty())
    return;
  std::vector<slabjit_located> Located;
  for (auto &[B, Section, Origin] : Link.Located)
    if (Blocks.count(B))
      Located.push_back({Section.data(), Section.size(), Origin, B->getAddress().getValue(), B->getSize()});
  Link.Callbacks->located(Link.Object, Located.data(), Located.size());
}

Error afterLayout(slabjit::Link &Link, LinkGraph &G) {
  if (Link.Refused)
    return slabjit::refused(Link.Refused);
  if (isX86_64(G) && !Link.KeepsRelaxations)
    keepWhatMustNotRelax(Link);
  if (isAArch64(G))
    placeGOTSymbol(G);
  if (!slabjit::DefinesSectionBounds)
    defineSectionBounds(G);
  report(Link, G);
  reportFunctionsAndBlocks(Link, G);
  return Error::success();
}

} // namespace

void slabjit::addPasses(Link &L, LinkGraph &Graph, PassConfiguration &Config) {
  if (!L.IsBare) {
    auto *Frames = Graph.findSectionByName(".eh_frame");
    // JITLink's first two passes take unwind tables apart (link_ELF_* in ELF_x86_64.cpp and ELF_aarch64.cpp).
    if (Frames && Config.PrePrunePasses.size() >= 2 && keepFramesWhole(Graph, *Frames))
      Config.PrePrunePasses.erase(Config.PrePrunePasses.begin(), Config.PrePrunePasses.begin() + 2);
    else
      splitFramesWithoutReferences(Graph, Config);
  }
  // One pass each: lists of passes are made for every object. These come after JITLink has made its GOT entries and
  // stubs.
  Config.PostPrunePasses.push_back([&L](LinkGraph &G) { return beforeLayout(L, G); });
  // Last of the post-allocation passes: addresses are final from here on.
  Config.PostAllocationPasses.push_back([&L](LinkGraph &G) { return afterLayout(L, G); });
  // After JITLink has relaxed what it can.
  Config.PreFixupPasses.push_back([&L](LinkGraph &G) { return slabjit::checkReferences(L, G); });
  slabjit::terminateFrames(Config);
}
