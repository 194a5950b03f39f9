// Indirect functions: a stub and a slot take the place of each, and what was there becomes its resolver.
#include "internal.h"

#include "llvm/ExecutionEngine/JITLink/aarch64.h"
#include "llvm/ExecutionEngine/JITLink/x86_64.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

constexpr StringRef Stubs = "$__slabjit_indirect";
constexpr StringRef Slots = "$__slabjit_indirect_slots";

Section &section(LinkGraph &G, StringRef Name, orc::MemProt Prot) {
  auto *Sec = G.findSectionByName(Name);
  return Sec ? *Sec : G.createSection(Name, Prot);
}

/// jmp *slot(%rip), then traps
constexpr char X86Stub[8] = {'\xff', '\x25', 0, 0, 0, 0, '\xcc', '\xcc'};
/// adrp x16, slot; ldr x16, [x16, :lo12:slot]; br x16
constexpr char AArch64Stub[12] = {0x10, 0x00, 0x00, '\x90', 0x10, 0x02, 0x40, '\xf9', 0x00, 0x02, 0x1f, '\xd6'};

void makeIndirect(LinkGraph &G, Symbol &S) {
  bool IsAArch64 = G.getTargetTriple().isAArch64();
  static const char Empty[8] = {};
  auto &Resolver = G.addAnonymousSymbol(S.getBlock(), S.getOffset(), 0, true, true);
  auto &Slot = G.createContentBlock(section(G, Slots, orc::MemProt::Read | orc::MemProt::Write), ArrayRef<char>(Empty),
                                    orc::ExecutorAddr(), 8, 0);
  Slot.addEdge(IsAArch64 ? Edge::Kind(aarch64::Pointer64) : Edge::Kind(x86_64::Pointer64), 0, Resolver, 0);
  auto &AtSlot = G.addAnonymousSymbol(Slot, 0, 8, false, true);
  auto &Code = section(G, Stubs, orc::MemProt::Read | orc::MemProt::Exec);
  auto Content = IsAArch64 ? ArrayRef<char>(AArch64Stub) : ArrayRef<char>(X86Stub);
  auto &Stub = G.createContentBlock(Code, Content, orc::ExecutorAddr(), 16, 0);
  if (IsAArch64) {
    Stub.addEdge(aarch64::Page21, 0, AtSlot, 0);
    Stub.addEdge(aarch64::PageOffset12, 4, AtSlot, 0);
  } else
    Stub.addEdge(x86_64::Delta32, 2, AtSlot, -4);
  G.transferDefinedSymbol(S, Stub, 0, Stub.getSize());
  S.setCallable(true);
}

} // namespace

void slabjit::noteIndirectFunctions(Link &L, LinkGraph &G) {
  for (auto *S : G.defined_symbols()) {
    if (!S->hasName() || S->getBlock().isZeroFill())
      continue;
    auto Name = symbolName(*S);
    auto *Content = S->getBlock().getContent().data() + S->getOffset();
    if (L.Callbacks->indirect(L.Object, Name.data(), Name.size(), Content))
      L.Indirect.insert(S);
  }
}

Error slabjit::makeIndirectFunctions(Link &L, LinkGraph &G) {
  if (L.Indirect.empty())
    return Error::success();
  // Only those that were not pruned: the others' memory may be gone.
  SmallVector<Symbol *, 4> Kept;
  for (auto *S : G.defined_symbols())
    if (L.Indirect.count(S))
      Kept.push_back(S);
  for (auto *S : Kept)
    makeIndirect(G, *S);
  return Error::success();
}

void slabjit::reportSlots(LinkGraph &G, SmallVectorImpl<slabjit_placed> &Blocks) {
  auto *Sec = G.findSectionByName(Slots);
  if (!Sec)
    return;
  auto First = Blocks.size();
  for (auto *B : Sec->blocks())
    Blocks.push_back({SLABJIT_SLOT, B->getAddress().getValue(), B->getSize()});
  std::sort(Blocks.begin() + First, Blocks.end(), [](auto &L, auto &R) { return L.address < R.address; });
}
