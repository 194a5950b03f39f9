// LinkGraphs: built from bytes, and bound to the caller's decisions.
#include "internal.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

namespace {

void bindDefined(slabjit_graph &G, Symbol &S, SmallVectorImpl<Symbol *> &Discarded) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Link->Callbacks->defined(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_DISCARD)
    return Discarded.push_back(&S);
  S.setLinkage(Linkage::Strong);
  if (D.verdict == SLABJIT_RENAME) {
    StringRef Export(D.name, D.name_len);
    slabjit::setSymbolName(*G.Graph, S, Export);
    S.setScope(Scope::Default);
    G.Link->Exports.push_back(&S);
  } else {
    S.setScope(Scope::Local);
    if (D.verdict == SLABJIT_DROP)
      return;
  }
  S.setLive(true);
  G.Link->Symbols.push_back({&S, D.cookie});
}

// Externals by the name they were given, and those that stand for another one of the same name.
struct Given {
  DenseMap<StringRef, Symbol *> ByName;
  DenseMap<Symbol *, Symbol *> Second;
};

// Leads references to second names to the first, all in one go.
void retarget(LinkGraph &G, const DenseMap<Symbol *, Symbol *> &Second) {
  if (Second.empty())
    return;
  for (auto *B : G.blocks())
    for (auto &E : B->edges())
      if (auto *First = Second.lookup(&E.getTarget()))
        E.setTarget(*First);
  for (auto &[S, First] : Second)
    G.removeAbsoluteSymbol(*S);
}

void bindExternal(slabjit_graph &G, Symbol &S, Given &Given) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Link->Callbacks->external(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_ABSOLUTE)
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr(D.address));
  else if (D.verdict == SLABJIT_RENAME) {
    // The graph's map of externals is keyed by name: out of it under the old name, into it under the new one.
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr());
    StringRef New(D.name, D.name_len);
    // Two names may mean one definition (`f` and `f@VERSION`), and a graph has one external of a name.
    auto Same = Given.ByName.try_emplace(New, &S);
    if (!Same.second) {
      Given.Second[&S] = Same.first->second;
      return;
    }
    slabjit::setSymbolName(*G.Graph, S, New);
    G.Graph->makeExternal(S);
    S.setScope(Scope::Default);
  }
}

bool isLocal(const Symbol &S) { return S.isDefined() && S.getScope() == Scope::Local; }

// JITLink's GOT and stub tables are keyed by name (TableManager.h), but a merged object may have several local symbols
// of one name, or a local one beside an external one.
void makeLocalNamesUnique(LinkGraph &G, const slabjit::NamedSymbols &Named) {
  SmallVector<Symbol *, 8> Locals;
  DenseSet<StringRef> Names;
  for (auto *S : Named)
    if (isLocal(*S))
      Locals.push_back(S);
  if (Locals.empty())
    return;
  for (auto *S : Named)
    if (!isLocal(*S))
      Names.insert(slabjit::symbolName(*S));
  unsigned N = 0;
  for (auto *S : Locals)
    if (!Names.insert(slabjit::symbolName(*S)).second)
      slabjit::setSymbolName(G, *S, ("\1" + Twine(N++) + " " + slabjit::symbolName(*S)).str());
}

/// Notes the names of functions. Mapping symbols (AAELF64, 5.5.4) and labels of compilers are none.
void noteFunctions(slabjit::Link &Link, LinkGraph &G, const slabjit::NamedSymbols &Named) {
  for (auto *S : Named) {
    if (!S->isDefined())
      continue;
    auto &B = S->getBlock();
    auto &Sec = B.getSection();
    auto Name = slabjit::symbolName(*S);
    if ((Sec.getMemProt() & MemProt::Exec) == MemProt::None || !slabjit::isAllocated(Sec) || Name.empty() ||
        Name[0] == '$' || Name.take_front(2) == ".L")
      continue;
    if (auto Bytes = S->getSize() ? S->getSize() : B.getSize() - S->getOffset())
      Link.Functions.push_back({slabjit::keptName(G, *S), &B, S->getOffset(), Bytes});
  }
}

void noteBlocks(slabjit::Link &Link, LinkGraph &G) {
  for (auto &Sec : G.sections())
    if (slabjit::isAllocated(Sec))
      for (auto *B : Sec.blocks()) {
        auto *Content = B->isZeroFill() ? nullptr : B->getContent().data();
        bool IsOfObject = Content >= Link.Bytes.begin() && Content < Link.Bytes.end();
        Link.Located.push_back({B, slabjit::sectionName(Link, *B), IsOfObject ? Content : nullptr});
      }
}

} // namespace

extern "C" char *slabjit_graph_create(const char *Bytes, size_t Len, const char *Name, size_t NameLen,
                                      slabjit_graph **Out) noexcept {
  MemoryBufferRef Buffer(StringRef(Bytes, Len), StringRef(Name, NameLen));
  auto Made = std::make_unique<slabjit_graph>();
  Made->Graph = slabjit::buildPlain(Buffer, *Made->Link, Made->Named);
  if (!Made->Graph) {
    auto LLVMs = slabjit::createLinkGraph(Buffer);
    if (!LLVMs)
      return slabjit::takeText(LLVMs.takeError());
    Made->Graph = std::move(*LLVMs);
    for (auto *S : Made->Graph->defined_symbols())
      if (S->hasName())
        Made->Named.push_back(S);
    Made->Named.append(Made->Graph->external_symbols().begin(), Made->Graph->external_symbols().end());
  }
  Made->Link->Bytes = Buffer.getBuffer();
  *Out = Made.release();
  return nullptr;
}

extern "C" void slabjit_graph_bind(slabjit_graph *Graph, const slabjit_callbacks *Callbacks, void *Object, int Retain,
                                   int Indirect, int Locate) noexcept {
  auto &G = *Graph->Graph;
  Graph->Link->Callbacks = Callbacks;
  Graph->Link->Object = Object;

  if (Indirect)
    slabjit::noteIndirectFunctions(*Graph->Link, G);
  noteFunctions(*Graph->Link, G, Graph->Named);
  if (Locate)
    noteBlocks(*Graph->Link, G);
  makeLocalNamesUnique(G, Graph->Named);
  for (auto &Sec : G.sections()) {
    // Sections without memory are left to be pruned.
    if (!Retain || !slabjit::isAllocated(Sec))
      continue;
    for (auto *B : Sec.blocks()) {
      auto *Content = B->isZeroFill() ? nullptr : B->getContent().data();
      auto Name = slabjit::sectionName(*Graph->Link, *B);
      auto Cookie = Callbacks->retain_block(Object, Name.data(), Name.size(), Content);
      if (!Cookie)
        continue;
      if (Cookie & SLABJIT_APART) {
        Graph->Link->Apart.insert(&Sec);
        Cookie &= ~SLABJIT_APART;
      }
      Graph->Link->Blocks.push_back({B, Cookie});
    }
  }
  for (auto &R : Graph->Link->Blocks)
    G.addAnonymousSymbol(*R.Block, 0, 0, false, true);

  SmallVector<Symbol *, 8> Discarded;
  for (auto *S : Graph->Named)
    if (S->isDefined() && S->getScope() != Scope::Local)
      bindDefined(*Graph, *S, Discarded);
  for (auto *S : Discarded) {
    S->setLinkage(Linkage::Strong);
    G.makeExternal(*S);
  }
  Given Given;
  for (auto *S : Graph->Named)
    if (S->isExternal())
      bindExternal(*Graph, *S, Given);
  retarget(G, Given.Second);
  Graph->Link->IsBare = slabjit::doWithoutPasses(*Graph->Link, G);
}

extern "C" void slabjit_graph_dispose(slabjit_graph *Graph) noexcept { delete Graph; }
