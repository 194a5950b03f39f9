// A JITLinkMemoryManager that asks the caller for memory. Address space, protections and lifetimes are the caller's.
#include "internal.h"

using namespace llvm;
using namespace llvm::jitlink;

namespace {

Error refused(const char *What) {
  return make_error<StringError>(Twine("slabjit: ") + What, inconvertibleErrorCode());
}

class Allocation final : public JITLinkMemoryManager::InFlightAlloc {
public:
  Allocation(const slabjit_callbacks &Callbacks, LinkGraph &G, void *Object, void *Memory)
      : Callbacks(Callbacks), G(G), Object(Object), Memory(Memory) {}

  void finalize(OnFinalizedFunction OnFinalized) override {
    if (Callbacks.publish(Object, Memory) != 0)
      return fail(std::move(OnFinalized), refused("publishing memory failed"));
    auto Actions = orc::shared::runFinalizeActions(G.allocActions());
    if (!Actions)
      return fail(std::move(OnFinalized), Actions.takeError());
    auto *Owned = Actions->empty() ? nullptr : new slabjit_actions{std::move(*Actions)};
    uint64_t Token = Callbacks.commit(Object, Memory, Owned);
    OnFinalized(JITLinkMemoryManager::FinalizedAlloc(orc::ExecutorAddr(Token)));
  }

  void abandon(OnAbandonedFunction OnAbandoned) override {
    Callbacks.abandon(Object, Memory);
    OnAbandoned(Error::success());
  }

private:
  void fail(OnFinalizedFunction OnFinalized, Error E) {
    Callbacks.abandon(Object, Memory);
    OnFinalized(std::move(E));
  }

  const slabjit_callbacks &Callbacks;
  LinkGraph &G;
  void *Object, *Memory;
};

void describeLargestSection(LinkGraph &G, orc::AllocGroup Group, slabjit_segment &Out) {
  for (auto &Sec : G.sections()) {
    if (Sec.getMemProt() != Group.getMemProt() || Sec.getMemLifetime() != Group.getMemLifetime())
      continue;
    uint64_t Bytes = 0;
    for (auto *B : Sec.blocks())
      Bytes += B->getSize();
    if (Bytes > Out.largest_section_bytes) {
      Out.largest_section_bytes = Bytes;
      Out.largest_section = Sec.getName().data();
      Out.largest_section_len = Sec.getName().size();
    }
  }
}

class MemoryManager final : public JITLinkMemoryManager {
public:
  MemoryManager(const slabjit_callbacks &Callbacks, slabjit::LinksInProgress &Links)
      : Callbacks(Callbacks), Links(Links) {}

  void allocate(const JITLinkDylib *, LinkGraph &G, OnAllocatedFunction OnAllocated) override {
    auto *Link = Links.find(&G);
    if (!Link)
      return OnAllocated(refused("this session links only graphs that slabjit made; give other objects to an LLJIT of their own"));

    BasicLayout Layout(G);
    SmallVector<slabjit_segment, 4> Segments;
    for (auto &[Group, Segment] : Layout.segments()) {
      auto Prot = Group.getMemProt();
      slabjit_segment S{};
      S.readable = (Prot & orc::MemProt::Read) != orc::MemProt::None;
      S.writable = (Prot & orc::MemProt::Write) != orc::MemProt::None;
      S.executable = (Prot & orc::MemProt::Exec) != orc::MemProt::None;
      S.finalize = Group.getMemLifetime() == orc::MemLifetime::Finalize;
      S.alignment = Segment.Alignment.value();
      S.content_bytes = Segment.ContentSize;
      S.zero_fill_bytes = Segment.ZeroFillSize;
      describeLargestSection(G, Group, S);
      Segments.push_back(S);
    }

    SmallVector<uint64_t, 4> Addresses(Segments.size());
    void *Memory = nullptr;
    if (Callbacks.allocate(Link->Object, Segments.data(), Segments.size(), Addresses.data(), &Memory) != 0)
      return OnAllocated(refused("no memory for this object"));

    size_t I = 0;
    for (auto &[Group, Segment] : Layout.segments()) {
      Segment.Addr = orc::ExecutorAddr(Addresses[I++]);
      Segment.WorkingMem = Segment.Addr.toPtr<char *>();
    }
    if (auto E = Layout.apply()) {
      Callbacks.abandon(Link->Object, Memory);
      return OnAllocated(std::move(E));
    }
    OnAllocated(std::make_unique<Allocation>(Callbacks, G, Link->Object, Memory));
  }

  void deallocate(std::vector<FinalizedAlloc> Allocs, OnDeallocatedFunction OnDeallocated) override {
    for (auto &A : Allocs)
      Callbacks.release(A.release().getValue());
    OnDeallocated(Error::success());
  }

  using JITLinkMemoryManager::allocate;
  using JITLinkMemoryManager::deallocate;

private:
  const slabjit_callbacks &Callbacks;
  slabjit::LinksInProgress &Links;
};

} // namespace

std::unique_ptr<JITLinkMemoryManager> slabjit::createMemoryManager(const slabjit_callbacks &Callbacks,
                                                                   LinksInProgress &Links) {
  return std::make_unique<MemoryManager>(Callbacks, Links);
}

extern "C" char *slabjit_actions_run(slabjit_actions *Actions) noexcept {
  if (!Actions)
    return nullptr;
  std::unique_ptr<slabjit_actions> Owned(Actions);
  return slabjit::takeText(orc::shared::runDeallocActions(Owned->Calls));
}
