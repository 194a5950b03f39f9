// The JITLinkMemoryManager, which asks the caller for memory. Address space, protections and lifetimes are the
// caller's.
#include "internal.h"

using namespace llvm;
using namespace llvm::jitlink;

Error slabjit::refused(const char *What) {
  return make_error<StringError>(Twine("slabjit: ") + What, inconvertibleErrorCode());
}

namespace {

/// What JITLink gets in place of memory where it has to be given something.
class NoAllocation final : public JITLinkMemoryManager::InFlightAlloc {
public:
  void finalize(OnFinalizedFunction OnFinalized) override { OnFinalized(slabjit::refused("no memory")); }
  void abandon(OnAbandonedFunction OnAbandoned) override { OnAbandoned(Error::success()); }
};

/// Ends a link for which the caller has no memory.
void refuse(slabjit::Link &L, JITLinkMemoryManager::OnAllocatedFunction OnAllocated, const char *What) {
  if (slabjit::SurvivesRefusal)
    return OnAllocated(slabjit::refused(What));
  L.Refused = What;
  OnAllocated(std::make_unique<NoAllocation>());
}

/// JITLink wants a token for each allocation. Ours says nothing: what was committed is the caller's.
const orc::ExecutorAddr NothingHeld(1);

class Allocation final : public JITLinkMemoryManager::InFlightAlloc {
public:
  Allocation(const slabjit_callbacks &Callbacks, LinkGraph &G, slabjit_memory Memory,
             slabjit::FinishedLinks *Keep)
      : Callbacks(Callbacks), G(G), Memory(Memory), Keep(Keep) {}

  void finalize(OnFinalizedFunction OnFinalized) override {
    slabjit::Finished Done{&Callbacks, Memory, std::move(G.allocActions())};
    if (Keep)
      // The graph goes with this call.
      Keep->add(std::move(Done));
    else if (!slabjit::publish(Done))
      return Done.abandon(), OnFinalized(slabjit::refused("publishing memory failed"));
    else if (auto E = Done.commit())
      return OnFinalized(std::move(E));
    OnFinalized(JITLinkMemoryManager::FinalizedAlloc(NothingHeld));
  }

  void abandon(OnAbandonedFunction OnAbandoned) override {
    Callbacks.abandon(Memory.object, Memory.allocation);
    OnAbandoned(Error::success());
  }

private:
  const slabjit_callbacks &Callbacks;
  LinkGraph &G;
  slabjit_memory Memory;
  slabjit::FinishedLinks *Keep;
};

/// Whether a reference of this kind reaches all of the address space.
bool isWide(const LinkGraph &G, Edge::Kind K) {
  if (K < Edge::FirstRelocation)
    return true;
  if (G.getTargetTriple().isAArch64())
    return K == aarch64::Pointer64 || K == aarch64::Delta64 || K == aarch64::NegDelta64 || K == aarch64::MoveWide16;
  return K == x86_64::Pointer64 || K == x86_64::Delta64 || K == x86_64::NegDelta64 || K == x86_64::Delta64FromGOT;
}

/// A section that gets a segment of its own, away from the others.
struct Leaving {
  Section *Sec;
  slabjit::Hidden Was;
  SmallVector<Block *, 4> Blocks;
  slabjit_segment Segment;
};

void describe(orc::MemProt Prot, slabjit::MemLifetime Lifetime, slabjit_segment &S) {
  S.readable = (Prot & orc::MemProt::Read) != orc::MemProt::None;
  S.writable = (Prot & orc::MemProt::Write) != orc::MemProt::None;
  S.executable = (Prot & orc::MemProt::Exec) != orc::MemProt::None;
  S.finalize = Lifetime == slabjit::MemLifetime::Finalize;
}

/// The sections that may leave and are kept by no reference.
SmallVector<Section *, 2> findLeaving(const slabjit::Link &L, LinkGraph &G) {
  SmallVector<Section *, 2> Candidates;
  for (auto &Sec : G.sections())
    if (slabjit::isAllocated(Sec) && Sec.blocks_size() != 0 && !L.Apart.count(&Sec) &&
        L.Callbacks->may_leave(L.Object, Sec.getName().data(), Sec.getName().size()))
      Candidates.push_back(&Sec);
  if (Candidates.empty())
    return Candidates;
  DenseSet<Section *> Kept;
  for (auto *B : G.blocks())
    for (auto &E : B->edges()) {
      auto *Target = E.getTarget().isDefined() ? &E.getTarget().getBlock().getSection() : nullptr;
      if (Target == &B->getSection() || isWide(G, E.getKind()))
        continue;
      Kept.insert(&B->getSection());
      Kept.insert(Target);
    }
  llvm::erase_if(Candidates, [&](Section *Sec) { return Kept.contains(Sec); });
  llvm::sort(Candidates, [](Section *L, Section *R) { return L->getOrdinal() < R->getOrdinal(); });
  return Candidates;
}

/// What BasicLayout does for a segment, for one section. Takes the section away from BasicLayout until `settle`.
Leaving takeAway(Section &Sec) {
  Leaving L{&Sec, slabjit::hide(Sec), {Sec.blocks().begin(), Sec.blocks().end()}, {}};
  llvm::sort(L.Blocks, [](Block *A, Block *B) {
    return std::make_tuple(A->isZeroFill(), A->getAddress(), A->getSize()) <
           std::make_tuple(B->isZeroFill(), B->getAddress(), B->getSize());
  });
  describe(L.Was.Prot, L.Was.Lifetime, L.Segment);
  L.Segment.outside = 1;
  L.Segment.alignment = 1;
  uint64_t End = 0;
  for (auto *B : L.Blocks) {
    End = alignToBlock(End, *B) + B->getSize();
    (B->isZeroFill() ? L.Segment.zero_fill_bytes : L.Segment.content_bytes) = End;
    L.Segment.alignment = std::max<uint64_t>(L.Segment.alignment, B->getAlignment());
  }
  if (L.Segment.zero_fill_bytes)
    L.Segment.zero_fill_bytes -= L.Segment.content_bytes;
  return L;
}

void put(Block &B, orc::ExecutorAddr At, orc::ExecutorAddr Written) {
  B.setAddress(At);
  if (B.isZeroFill())
    return;
  auto *Memory = Written.toPtr<char *>();
  std::memcpy(Memory, B.getContent().data(), B.getSize());
  B.setMutableContent({Memory, static_cast<size_t>(B.getSize())});
}

void settle(Leaving &L, orc::ExecutorAddr Start, orc::ExecutorAddr Written, uint64_t Displacement) {
  auto At = Start;
  for (auto *B : L.Blocks) {
    At = alignToBlock(At, *B);
    put(*B, At + Displacement, Written + (At - Start));
    At += B->getSize();
  }
  slabjit::show(*L.Sec, L.Was);
}

/// Puts the blocks of a section where the caller has memory for them. False if it has none; it knows why.
bool putApart(const slabjit::Link &L, Section &Sec) {
  for (auto *B : slabjit::blocksInOrder(Sec)) {
    slabjit_block Shown{};
    Shown.section = Sec.getName().data();
    Shown.section_len = Sec.getName().size();
    Shown.origin = B->isZeroFill() ? nullptr : B->getContent().data();
    Shown.size = B->getSize();
    uint64_t Address = 0, Written = 0;
    if (L.Callbacks->place(L.Object, &Shown, B->getAlignment(), &Address, &Written) != 0)
      return false;
    put(*B, orc::ExecutorAddr(Address) + L.Displacement, orc::ExecutorAddr(Written));
  }
  return true;
}

} // namespace

void slabjit::MemoryManager::allocate(const JITLinkDylib *, LinkGraph &G, OnAllocatedFunction OnAllocated) {
  SmallVector<std::pair<Section *, slabjit::Hidden>, 2> Apart;
  for (auto *Sec : L.Apart) {
    if (!putApart(L, *Sec))
      return refuse(L, std::move(OnAllocated), "no memory for a section apart");
    Apart.push_back({Sec, slabjit::hide(*Sec)});
  }
  SmallVector<Leaving, 2> Away;
  for (auto *Sec : findLeaving(L, G))
    Away.push_back(takeAway(*Sec));
  BasicLayout Layout(G);
  SmallVector<slabjit_segment, 4> Segments;
  auto Shown = slabjit::segments(Layout);
  for (auto &[Group, Segment] : Shown) {
    slabjit_segment S{};
    describe(Group.getMemProt(), slabjit::lifetime(Group), S);
    S.alignment = Segment->Alignment.value();
    S.content_bytes = Segment->ContentSize;
    S.zero_fill_bytes = Segment->ZeroFillSize;
    Segments.push_back(S);
  }

  for (auto &Left : Away)
    Segments.push_back(Left.Segment);

  SmallVector<uint64_t, 4> Addresses(Segments.size()), Written(Segments.size());
  void *Memory = nullptr;
  if (L.Callbacks->allocate(L.Object, Segments.data(), Segments.size(), Addresses.data(), Written.data(), &Memory) != 0)
    return refuse(L, std::move(OnAllocated), "no memory for this object");

  size_t I = 0;
  for (auto &[Group, Segment] : Shown) {
    Segment->Addr = orc::ExecutorAddr(Addresses[I]) + L.Displacement;
    Segment->WorkingMem = orc::ExecutorAddr(Written[I++]).toPtr<char *>();
  }
  for (auto &[Sec, Was] : Apart)
    slabjit::show(*Sec, Was);
  for (auto &Left : Away) {
    settle(Left, orc::ExecutorAddr(Addresses[I]), orc::ExecutorAddr(Written[I]), L.Displacement);
    ++I;
  }
  if (auto E = Layout.apply()) {
    L.Callbacks->abandon(L.Object, Memory);
    return OnAllocated(std::move(E));
  }
  OnAllocated(std::make_unique<Allocation>(*L.Callbacks, G, slabjit_memory{L.Object, Memory}, Keep));
}

Error slabjit::Finished::commit() {
  auto ToUndo = slabjit::runFinalizeActions(Actions);
  if (!ToUndo) {
    abandon();
    return ToUndo.takeError();
  }
  auto *Owned = ToUndo->empty() ? nullptr : new slabjit_actions{std::move(*ToUndo)};
  Callbacks->commit(Memory.object, Memory.allocation, Owned);
  return Error::success();
}

void slabjit::Finished::abandon() { Callbacks->abandon(Memory.object, Memory.allocation); }

bool slabjit::publish(ArrayRef<Finished> Links) {
  SmallVector<slabjit_memory, 1> Memory;
  for (auto &F : Links)
    Memory.push_back(F.Memory);
  return Links.empty() || Links.front().Callbacks->publish(Memory.data(), Memory.size()) == 0;
}

void slabjit::MemoryManager::deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) {
  for (auto &A : Allocs)
    A.release();
  OnDeallocated(Error::success());
}

extern "C" char *slabjit_actions_run(slabjit_actions *Actions) noexcept {
  if (!Actions)
    return nullptr;
  std::unique_ptr<slabjit_actions> Owned(Actions);
  return slabjit::takeText(slabjit::runDeallocActions(Owned->Calls));
}
