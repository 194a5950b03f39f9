// One order for the blocks of an object, whichever way they are stored.
#include "internal.h"

using namespace llvm;
using namespace llvm::jitlink;

slabjit::Sections slabjit::sectionsInOrder(LinkGraph &G) {
  Sections InOrder;
  for (auto &Sec : G.sections())
    if (Sec.blocks_size() != 0)
      InOrder.push_back(&Sec);
  llvm::sort(InOrder, [](Section *L, Section *R) { return L->getOrdinal() < R->getOrdinal(); });
  return InOrder;
}

slabjit::Blocks slabjit::blocksInOrder(Section &Sec) {
  Blocks InOrder;
  // As many as there are: past the last block, LLVM's set has nothing but empty buckets to look at.
  InOrder.reserve(Sec.blocks_size());
  for (auto I = Sec.blocks().begin(); InOrder.size() != Sec.blocks_size(); ++I)
    InOrder.push_back(*I);
  llvm::sort(InOrder, [](Block *L, Block *R) { return L->getAddress() < R->getAddress(); });
  return InOrder;
}

namespace {

/// Ranks the blocks that share an address with others of their section, in the order in which they are reached.
class Order {
public:
  explicit Order(LinkGraph &G) : G(G) {
    for (auto &Sec : G.sections()) {
      if (Sec.blocks_size() < 2)
        continue;
      auto Blocks = slabjit::blocksInOrder(Sec);
      bool Shared = false;
      for (size_t I = 1; I != Blocks.size(); ++I)
        if (Blocks[I - 1]->getAddress() == Blocks[I]->getAddress()) {
          Ranks[Blocks[I - 1]] = Ranks[Blocks[I]] = 0;
          Shared = true;
        }
      if (Shared)
        Unordered.push_back(&Sec);
    }
  }

  bool isThere() const { return Unordered.empty(); }

  /// What has bytes in the object: by where they are. Sections of one name are one section here, such as the members of
  /// a set that are in COMDAT groups.
  void rankByFile(StringRef Object) {
    std::vector<Block *> Blocks;
    for (auto &[B, Rank] : Ranks)
      if (!B->isZeroFill() && B->getContent().data() >= Object.begin() && B->getContent().data() < Object.end())
        Blocks.push_back(B);
    llvm::sort(Blocks, [](Block *L, Block *R) { return L->getContent().data() < R->getContent().data(); });
    for (auto *B : Blocks)
      rank(*B);
  }

  /// What linking made, and what has no bytes: by the first reference to each, in the order of the file.
  void rankByReferences() {
    if (Ranked.size() == Ranks.size())
      return;
    for (auto *Sec : slabjit::sectionsInOrder(G))
      for (auto *B : slabjit::blocksInOrder(*Sec))
        if (!Ranks.count(B))
          follow(*B);
    followRanked();
  }

  /// What nothing refers to: by the names of their symbols.
  void rankByNames() {
    if (Ranked.size() == Ranks.size())
      return;
    std::vector<std::pair<StringRef, Block *>> Names;
    for (auto *S : G.defined_symbols())
      if (Ranks.count(&S->getBlock()) && S->hasName())
        Names.emplace_back(slabjit::symbolName(*S), &S->getBlock());
    // Names that end in a number by the number.
    llvm::sort(Names, [](auto &L, auto &R) {
      return std::make_pair(L.first.size(), L.first) < std::make_pair(R.first.size(), R.first);
    });
    for (auto &[Name, B] : Names)
      rank(*B);
    followRanked();
  }

  /// Turns ranks into addresses.
  void settle() {
    for (auto *Sec : Unordered) {
      auto Blocks = slabjit::blocksInOrder(*Sec);
      llvm::stable_sort(Blocks, [&](Block *L, Block *R) {
        return std::make_pair(L->getAddress(), Ranks.lookup(L)) < std::make_pair(R->getAddress(), Ranks.lookup(R));
      });
      for (size_t I = 0; I != Blocks.size(); ++I)
        Blocks[I]->setAddress(orc::ExecutorAddr(I + 1));
    }
  }

private:
  void rank(Block &B) {
    auto Rank = Ranks.find(&B);
    if (Rank == Ranks.end() || Rank->second)
      return;
    Ranked.push_back(&B);
    Rank->second = Ranked.size();
  }

  void follow(Block &B) {
    for (auto &E : B.edges())
      if (E.getTarget().isDefined())
        rank(E.getTarget().getBlock());
  }

  void followRanked() {
    for (; Followed != Ranked.size(); ++Followed)
      follow(*Ranked[Followed]);
  }

  LinkGraph &G;
  slabjit::Sections Unordered;
  /// 0 until it is reached.
  DenseMap<Block *, size_t> Ranks;
  std::vector<Block *> Ranked;
  size_t Followed = 0;
};

} // namespace

/// JITLink keeps the blocks of a section in a set that is ordered by where they happen to be allocated, and BasicLayout
/// orders them by address, then by size, then as they come. Sections of one name, what linking adds (GOT entries,
/// stubs, slots) and COMMON symbols are many blocks with one address. Numbers as addresses tell BasicLayout their
/// order, and end with it.
Error slabjit::orderBlocks(LinkGraph &G, StringRef Object) {
  Order Order(G);
  if (Order.isThere())
    return Error::success();
  Order.rankByFile(Object);
  Order.rankByReferences();
  Order.rankByNames();
  Order.settle();
  return Error::success();
}
