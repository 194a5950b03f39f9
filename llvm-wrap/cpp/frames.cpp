// Unwind tables: in records or as a whole, and without gaps.
#include "internal.h"

#include "llvm/Support/Endian.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

/// A table of 32-bit records, read from its beginning.
class Records {
public:
  explicit Records(Block &Table) : Table(Table), Bytes(Table.getContent()) {}

  /// Whether it is what compilers write: CIEs of known shapes, FDEs that each name one of them and have a reference
  /// where their function's address belongs, and no end before the end.
  bool areUsual() {
    auto Next = Table.edges().begin(), End = Table.edges().end();
    for (size_t At = 0; At != Bytes.size();) {
      if (Bytes.size() - At < 8)
        return false;
      size_t Length = word(At);
      if (Length < 4 || Length > Bytes.size() - At - 4)
        return false;
      size_t After = At + 4 + Length;
      if (size_t Back = word(At + 4)) {
        if (Back > At + 4 || !Cies.count(At + 4 - Back) || Length < 12)
          return false;
        if (Next == End || Next->getOffset() != At + 8 || !Next->getTarget().isDefined())
          return false;
        Described.push_back(&Next->getTarget().getBlock());
      } else if (!isUsualCie(At + 8, After))
        return false;
      else
        Cies.insert(At);
      for (; Next != End && Next->getOffset() < After; ++Next)
        if (Next->getOffset() < At + 8)
          return false;
      At = After;
    }
    return Next == End;
  }

  /// What the FDEs are about.
  SmallVector<Block *, 8> Described;

private:
  uint32_t word(size_t At) const { return support::endian::read32le(Bytes.data() + At); }

  /// Version 1, and an augmentation of letters that every unwinder knows.
  bool isUsualCie(size_t At, size_t End) const {
    if (At + 2 >= End || Bytes[At] != 1 || Bytes[At + 1] != 'z')
      return false;
    StringRef Letters(Bytes.data() + At + 2, End - At - 2);
    size_t Count = Letters.find('\0');
    return Count != StringRef::npos && Letters.take_front(Count).find_first_not_of("RPLSB") == StringRef::npos;
  }

  Block &Table;
  ArrayRef<char> Bytes;
  DenseSet<size_t> Cies;
};

/// The blocks that are kept, but for unwind tables and what only they refer to.
class Kept {
public:
  Kept(LinkGraph &G, Section &Frames) : Frames(Frames) {
    for (auto *S : G.defined_symbols())
      if (S->isLive())
        keep(S->getBlock());
  }

  bool haveAll(ArrayRef<Block *> Others) {
    auto IsKept = [&](Block *B) { return Blocks.count(B) != 0; };
    if (llvm::all_of(Others, IsKept))
      return true;
    while (!ToFollow.empty())
      for (auto &E : ToFollow.pop_back_val()->edges())
        if (E.getTarget().isDefined())
          keep(E.getTarget().getBlock());
    return llvm::all_of(Others, IsKept);
  }

private:
  void keep(Block &B) {
    if (&B.getSection() != &Frames && Blocks.insert(&B).second)
      ToFollow.push_back(&B);
  }

  Section &Frames;
  SmallPtrSet<Block *, 16> Blocks;
  SmallVector<Block *, 16> ToFollow;
};

} // namespace

/// JITLink takes unwind tables apart, record by record, so that those of pruned functions go: its passes
/// DWARFRecordSectionSplitter and EHFrameEdgeFixer. Where none is pruned that is a seventh of a small object's link for
/// nothing, and the table stays one block. Tables of any other shape than the usual are left to these passes, which say
/// what is wrong with them.
bool slabjit::keepFramesWhole(LinkGraph &G, Section &Frames) {
  SmallVector<Block *, 8> Described;
  for (auto *B : Frames.blocks()) {
    if (B->isZeroFill())
      return false;
    Records Records(*B);
    if (!Records.areUsual())
      return false;
    Described.append(Records.Described);
  }
  if (!Kept(G, Frames).haveAll(Described))
    return false;
  for (auto *B : Frames.blocks())
    G.addAnonymousSymbol(*B, 0, 0, false, true);
  return true;
}

/// JITLink's passes take unwind tables apart, make GOT entries and stubs for what is not in the graph, define what
/// refers to sections' bounds and to the GOT, and relax GOT loads and stubs (link_ELF_* in ELF_x86_64.cpp and
/// ELF_aarch64.cpp). Where everything that is referred to is in the graph, and nothing wants a GOT entry, there is
/// nothing of that to do, and they are a tenth of a small object's link.
bool slabjit::doWithoutPasses(const Link &L, LinkGraph &G) {
  auto None = [](auto Range) { return Range.begin() == Range.end(); };
  if (!L.IsPlain || L.WantsGOT || L.KeepsRelaxations || !None(G.external_symbols()) || !None(G.absolute_symbols()))
    return false;
  auto *Frames = G.findSectionByName(".eh_frame");
  if (!Frames || Frames->blocks_size() == 0)
    return true;
  if (!keepFramesWhole(G, *Frames))
    return false;
  // As EHFrameNullTerminator has it: the highest address comes last.
  static const char Zero[4] = {};
  auto &End = G.createContentBlock(*Frames, ArrayRef<char>(Zero), orc::ExecutorAddr(~uint64_t(4)), 1, 0);
  G.addAnonymousSymbol(End, 0, sizeof(Zero), false, true);
  return true;
}

/// The records of an unwind table lie one after the other: a zero between them is its end for an unwinder, and none
/// behind it would be found. JITLink makes each a block that keeps its offset in a multiple of the section's alignment,
/// and prunes those of functions that are discarded, so that alignment leaves gaps where they were. Only the table as a
/// whole is aligned.
void slabjit::closeGapsInFrames(LinkGraph &G) {
  auto *Frames = G.findSectionByName(".eh_frame");
  if (!Frames || Frames->blocks_size() < 2)
    return;
  auto ByAddress = [](Block *L, Block *R) { return L->getAddress() < R->getAddress(); };
  auto *First = *std::min_element(Frames->blocks().begin(), Frames->blocks().end(), ByAddress);
  for (auto *B : Frames->blocks())
    if (B != First) {
      B->setAlignmentOffset(0);
      B->setAlignment(1);
    }
}
