// What the .cpp files share.
#ifndef SLABJIT_INTERNAL_H
#define SLABJIT_INTERNAL_H

#include "slabjit.h"
#include "version.h"

#include <mutex>
#include <unordered_map>
#include <vector>

namespace slabjit {

/// A copy of `Text` for the C interface; freed by slabjit_string_free.
char *copyText(llvm::StringRef Text);
/// LLVM's words for an error, or nullptr for success.
char *takeText(llvm::Error E);

} // namespace slabjit

namespace slabjit {

/// One object from the moment its graph is bound until its link has ended.
struct Link {
  const slabjit_callbacks *Callbacks = nullptr;
  void *Object = nullptr;
  struct Named {
    llvm::jitlink::Symbol *Symbol;
    uint64_t Cookie;
  };
  struct Retained {
    llvm::jitlink::Block *Block;
    uint64_t Cookie;
  };
  std::vector<Named> Symbols;
  std::vector<Retained> Blocks;

  Link() = default;
  Link(const Link &) = delete;
  ~Link() {
    if (Callbacks)
      Callbacks->end(Object);
  }
};

/// Which object a graph or a responsibility under way belongs to. Links of one session run on many threads.
class LinksInProgress {
public:
  void insert(llvm::orc::MaterializationResponsibility *MR, llvm::jitlink::LinkGraph *G,
              std::unique_ptr<Link> L) {
    std::lock_guard<std::mutex> Lock(Mutex);
    ByGraph[G] = L.get();
    ByResponsibility[MR] = {G, std::move(L)};
  }
  Link *find(llvm::jitlink::LinkGraph *G) {
    std::lock_guard<std::mutex> Lock(Mutex);
    auto I = ByGraph.find(G);
    return I == ByGraph.end() ? nullptr : I->second;
  }
  /// Ends the link of `MR` and returns its record, if it is one of ours.
  std::unique_ptr<Link> take(llvm::orc::MaterializationResponsibility *MR) {
    std::lock_guard<std::mutex> Lock(Mutex);
    auto I = ByResponsibility.find(MR);
    if (I == ByResponsibility.end())
      return nullptr;
    auto L = std::move(I->second.second);
    ByGraph.erase(I->second.first);
    ByResponsibility.erase(I);
    return L;
  }

private:
  std::mutex Mutex;
  std::unordered_map<llvm::jitlink::LinkGraph *, Link *> ByGraph;
  std::unordered_map<llvm::orc::MaterializationResponsibility *,
                     std::pair<llvm::jitlink::LinkGraph *, std::unique_ptr<Link>>>
      ByResponsibility;
};

std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> createMemoryManager(const slabjit_callbacks &Callbacks,
                                                                         LinksInProgress &Links);
std::shared_ptr<llvm::orc::ObjectLinkingLayer::Plugin> createPlugin(const slabjit_callbacks &Callbacks,
                                                                    LinksInProgress &Links);
/// Takes the link that failed last on this thread (set by the plugin just before ORC reports the error).
std::unique_ptr<Link> takeFailedLink();

} // namespace slabjit

struct slabjit_session {
  slabjit_callbacks Callbacks;
  slabjit::LinksInProgress Links;
  std::unique_ptr<llvm::orc::LLJIT> JIT;
  llvm::orc::ObjectLinkingLayer *Layer = nullptr;
};

struct slabjit_graph {
  slabjit_session *Session;
  std::unique_ptr<llvm::jitlink::LinkGraph> Graph;
  std::unique_ptr<slabjit::Link> Link = std::make_unique<slabjit::Link>();
  /// Non-local definitions for ORC: name and whether it is code.
  std::vector<std::pair<std::string, bool>> Exports = {};
};

struct slabjit_actions {
  std::vector<llvm::orc::shared::WrapperFunctionCall> Calls;
};

#endif
