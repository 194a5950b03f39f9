// For tests: whether the graph of an object that is made without LLVM's builder is the one that LLVM's builder makes.
#include "internal.h"

#include <cstdlib>

using namespace llvm;
using namespace llvm::jitlink;

#if defined(SLABJIT_COMPARES_GRAPHS) && SLABJIT_KNOWS_GRAPHS

namespace {

/// A line for each block, symbol and edge that does not prune away by itself.
class Lines {
public:
  Lines(LinkGraph &G, const slabjit::Link &Link) : Link(Link) {
    for (auto &Sec : G.sections()) {
      if (!slabjit::isAllocated(Sec))
        continue;
      for (auto *B : Sec.blocks()) {
        if (B->getSize() != 0 || !slabjit::sectionName(Link, *B).starts_with("."))
          All.push_back("block " + of(*B));
        for (auto &E : B->edges())
          All.push_back(("edge " + of(*B) + "+" + Twine(E.getOffset()) + " kind " + Twine(unsigned(E.getKind())) + " " +
                         Twine(E.getAddend()) + " to " + of(E.getTarget()))
                            .str());
      }
      for (auto *S : Sec.symbols())
        if (S->hasName())
          All.push_back(("symbol " + slabjit::symbolName(*S) + " " + of(*S) + " " + Twine(S->getSize()) + " " +
                         Twine(unsigned(S->getLinkage())) + " " + Twine(unsigned(S->getScope())) + " " +
                         Twine(S->isCallable()))
                            .str());
    }
    for (auto *S : G.external_symbols())
      All.push_back(("external " + slabjit::symbolName(*S) + " " + Twine(S->getSize()) + " " +
                     Twine(S->isWeaklyReferenced()))
                        .str());
    for (auto *S : G.absolute_symbols())
      // What LLVM's builder makes of the first entry of each symbol table.
      if (slabjit::symbolName(*S) != "__jitlink_ELF_SYM_UND_0")
        All.push_back(("absolute " + slabjit::symbolName(*S)).str());
    llvm::sort(All);
  }

  std::vector<std::string> All;

private:
  std::string of(Block &B) const {
    std::string Text = slabjit::sectionName(Link, B).str();
    // Plain objects have no addresses: theirs are the numbers of sections.
    uint64_t Address = Link.IsPlain ? 0 : B.getAddress().getValue();
    for (uint64_t Number : {uint64_t(B.getSection().getMemProt()), uint64_t(B.getSize()), B.getAlignment(),
                            B.getAlignmentOffset(), Address})
      Text += ", " + std::to_string(Number);
    return Text + (B.isZeroFill() ? ", zeros" : ", at " + std::to_string(B.getContent().data() - Link.Bytes.data()));
  }

  std::string of(Symbol &S) const {
    if (!S.isDefined())
      return slabjit::symbolName(S).str();
    return (of(S.getBlock()) + "+" + Twine(S.getOffset())).str();
  }

  const slabjit::Link &Link;
};

} // namespace

void slabjit::compareWithLLVMs(LinkGraph &Plain, MemoryBufferRef Object) {
  static const char *Most = std::getenv("SLABJIT_COMPARE_GRAPHS");
  if (!Most || Object.getBufferSize() > std::strtoull(Most, nullptr, 10))
    return;
  auto LLVMs = createLinkGraph(Object);
  if (!LLVMs) {
    errs() << Object.getBufferIdentifier() << ": LLVM's builder refuses it: " << LLVMs.takeError() << "\n";
    std::abort();
  }
  slabjit::Link OfOurs, OfTheirs;
  OfOurs.Bytes = OfTheirs.Bytes = Object.getBuffer();
  OfOurs.IsPlain = true;
  Lines Ours(Plain, OfOurs), Theirs(**LLVMs, OfTheirs);
  auto [Our, Their] = std::mismatch(Ours.All.begin(), Ours.All.end(), Theirs.All.begin(), Theirs.All.end());
  if (Our == Ours.All.end() && Their == Theirs.All.end())
    return;
  errs() << Object.getBufferIdentifier() << ": graphs differ:\n  "
         << (Our == Ours.All.end() ? "nothing" : *Our) << "\n  " << (Their == Theirs.All.end() ? "nothing" : *Their)
         << "\n";
  std::abort();
}

#endif
