// The plugin: reports addresses, ends links, and tells which object an error belongs to.
#include "internal.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

// ObjectLinkingLayer calls notifyFailed and then the session's reporter, one after the other on one thread
// (ObjectLinkingLayerJITLinkContext::notifyFailed; LinkGraphLinkingLayer.cpp from 20 on).
static thread_local std::unique_ptr<slabjit::Link> FailedLink;

std::unique_ptr<slabjit::Link> slabjit::takeFailedLink() { return std::move(FailedLink); }

namespace {

class Plugin final : public ObjectLinkingLayer::Plugin {
public:
  Plugin(const slabjit_callbacks &Callbacks, slabjit::LinksInProgress &Links) : Callbacks(Callbacks), Links(Links) {}

  void modifyPassConfig(MaterializationResponsibility &, LinkGraph &G, PassConfiguration &Config) override {
    auto *Link = Links.find(&G);
    if (!Link)
      return;
    // Last of the post-allocation passes: addresses are final from here on.
    Config.PostAllocationPasses.push_back([this, Link](LinkGraph &G) {
      report(*Link, G);
      return Error::success();
    });
  }

  Error notifyEmitted(MaterializationResponsibility &MR) override {
    Links.take(&MR);
    return Error::success();
  }

  Error notifyFailed(MaterializationResponsibility &MR) override {
    if (auto Link = Links.take(&MR))
      FailedLink = std::move(Link);
    return Error::success();
  }

  Error notifyRemovingResources(JITDylib &, ResourceKey) override { return Error::success(); }
  void notifyTransferringResources(JITDylib &, ResourceKey, ResourceKey) override {}

private:
  void report(slabjit::Link &Link, LinkGraph &G) {
    SmallVector<slabjit_placed, 8> Symbols, Blocks;
    Symbols.reserve(Link.Symbols.size());
    for (auto &N : Link.Symbols)
      Symbols.push_back({N.Cookie, N.Symbol->getAddress().getValue(), N.Symbol->getSize()});
    Blocks.reserve(Link.Blocks.size());
    for (auto &R : Link.Blocks)
      Blocks.push_back({R.Cookie, R.Block->getAddress().getValue(), R.Block->getSize()});
    uint64_t Frames = 0, FrameBytes = 0;
    if (auto *Sec = G.findSectionByName(".eh_frame")) {
      SectionRange Range(*Sec);
      Frames = Range.getStart().getValue();
      FrameBytes = Range.getSize();
    }
    Callbacks.placed(Link.Object, Symbols.data(), Symbols.size(), Blocks.data(), Blocks.size(), Frames, FrameBytes);
  }

  const slabjit_callbacks &Callbacks;
  slabjit::LinksInProgress &Links;
};

} // namespace

std::shared_ptr<ObjectLinkingLayer::Plugin> slabjit::createPlugin(const slabjit_callbacks &Callbacks,
                                                                  LinksInProgress &Links) {
  return std::make_shared<Plugin>(Callbacks, Links);
}
