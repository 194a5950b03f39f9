// What LLVM's JITLink tests leave out: what the memory manager does with zero-fill, permissions, code that runs, actions, memory for
// finalisation only, and failures. The shim's manager and the crate's memory behind it, called as JITLink calls them.
//
// Each test prints a line; the exit code is 0 if all passed. Where memory lies, and what may be done there, /proc/self/maps says.
#include "suite.h"

#include "internal.h"

#include <cstdio>
#include <fstream>
#include <sstream>

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;
using namespace llvm::orc::shared;

extern "C" void slabjit_suite_let_go();
extern "C" uint64_t slabjit_suite_taken();

namespace {

bool Failed = false;
const char *Test = "";

void check(bool Good, const Twine &What) {
  if (Good)
    return;
  Failed = true;
  std::printf("FAIL %s: %s\n", Test, What.str().c_str());
}

/// What may be done at an address, as /proc/self/maps spells it; empty where nothing is mapped.
std::string access(ExecutorAddr Address) {
  std::ifstream Maps("/proc/self/maps");
  std::string Line;
  while (std::getline(Maps, Line)) {
    std::istringstream Fields(Line);
    uint64_t Start, End;
    char Dash;
    std::string Access;
    Fields >> std::hex >> Start >> Dash >> End >> Access;
    if (Start <= Address.getValue() && Address.getValue() < End)
      return Access.substr(0, 3);
  }
  return "";
}

/// What the actions of the graph at hand have done, in order.
std::string Log;
/// Memory that every action looks at.
Block *Watched, *Runs;

// Its type has another name from 22 on.
auto note(const char *Data, size_t Size) {
  return WrapperFunction<SPSError(SPSString)>::handle(Data, Size, [](std::string Name) -> Error {
           Log += Name + " ";
           if (Name == "fails")
             return make_error<StringError>("an action that fails", inconvertibleErrorCode());
           check(*Watched->getAddress().toPtr<const char *>() == 'w', Name + " does not see the memory");
           check(access(Runs->getAddress()) == "r-x", Name + " runs before protections are set");
           return Error::success();
         })
      .release();
}

WrapperFunctionCall call(std::string Name) {
  return cantFail(WrapperFunctionCall::Create<SPSArgList<SPSString>>(ExecutorAddr::fromPtr(note), Name));
}

/// `mov eax, 42; ret`, or `mov w0, 42; ret`.
#ifdef __aarch64__
constexpr char Answer[] = {'\x40', '\x05', '\x80', '\x52', '\xc0', '\x03', '\x5f', '\xd6'};
#else
constexpr char Answer[] = {'\xb8', 42, 0, 0, 0, '\xc3'};
#endif
constexpr char Wrote[] = {'w', 'r', 'o', 't', 'e'};
constexpr size_t Zeros = 3 << 16;

/// Code, constants, data with zero-fill behind it, and data for finalisation.
struct Graph {
  std::unique_ptr<LinkGraph> Owned;
  LinkGraph &G;
  jitlink::Block *Code, *Constant, *Data, *Zero, *Passing;

  Graph() : Owned(make()), G(*Owned) {
    auto Make = [&](const char *Name, MemProt Prot, ArrayRef<char> Bytes) -> jitlink::Block * {
      return &G.createContentBlock(G.createSection(Name, Prot), Bytes, ExecutorAddr(), 16, 0);
    };
    Code = Make("code", MemProt::Read | MemProt::Exec, Answer);
    Constant = Make("constant", MemProt::Read, Wrote);
    Data = Make("data", MemProt::Read | MemProt::Write, Wrote);
    Zero = &G.createZeroFillBlock(Data->getSection(), Zeros, ExecutorAddr(), 64, 0);
    Passing = Make("passing", MemProt::Read | MemProt::Write, Wrote);
#if LLVM_VERSION_MAJOR >= 17
    slabjit::setLifetime(Passing->getSection(), slabjit::MemLifetime::Finalize);
#else
    Passing->getSection().setMemDeallocPolicy(MemDeallocPolicy::Finalize);
#endif
    Watched = Constant;
    Runs = Code;
    Log.clear();
  }

  static std::unique_ptr<LinkGraph> make() {
#ifdef __aarch64__
    Triple T("aarch64-unknown-linux-gnu");
#else
    Triple T("x86_64-unknown-linux-gnu");
#endif
    auto Name = [](Edge::Kind) { return "edge"; };
#if LLVM_VERSION_MAJOR >= 20
    return std::make_unique<LinkGraph>("graph", std::make_shared<SymbolStringPool>(), T, SubtargetFeatures(), Name);
#elif LLVM_VERSION_MAJOR >= 18
    return std::make_unique<LinkGraph>("graph", T, 8, endianness::little, Name);
#else
    return std::make_unique<LinkGraph>("graph", T, 8, support::little, Name);
#endif
  }
};

bool isZero(ExecutorAddr At, size_t Size) {
  auto *Bytes = At.toPtr<const char *>();
  return std::all_of(Bytes, Bytes + Size, [](char B) { return B == 0; });
}

void testAllocated(JITLinkMemoryManager &M) {
  Graph X;
  auto A = cantFail(M.allocate(nullptr, X.G));
  for (auto *B : {X.Code, X.Constant, X.Data, X.Zero, X.Passing})
    check(access(B->getAddress()) == "rw-", "not writable, or executable, before it is final");
  for (auto *B : {X.Code, X.Constant, X.Data, X.Passing}) {
    auto *Memory = B->getAddress().toPtr<const char *>();
    auto Expected = B == X.Code ? ArrayRef<char>(Answer) : ArrayRef<char>(Wrote);
    check(B->getContent().data() == Memory, "LLVM would write elsewhere");
    check(ArrayRef<char>(Memory, B->getSize()).equals(Expected), "content was not copied");
  }
  cantFail(M.deallocate(cantFail(A->finalize())));
}

void testFinal(JITLinkMemoryManager &M) {
  Graph X;
  auto A = cantFail(M.allocate(nullptr, X.G));
  cantFail(M.deallocate(cantFail(A->finalize())));
  check(access(X.Code->getAddress()) == "r-x", "code");
  check(access(X.Constant->getAddress()) == "r--", "constants");
  check(access(X.Data->getAddress()) == "rw-", "data");
  check(access(X.Zero->getAddress() + (Zeros - 1)) == "rw-", "zero-fill");
  check(access(X.Passing->getAddress()) != "rw-", "memory for finalisation is still there");
  check(X.Code->getAddress().toPtr<int (*)()>()() == 42, "code does not run");
  check(StringRef(X.Data->getAddress().toPtr<const char *>(), 5) == "wrote", "data");
  check(isZero(X.Zero->getAddress(), Zeros), "zero-fill is not zero");
  std::memset(X.Zero->getAddress().toPtr<char *>(), 1, Zeros);
}

/// After memory that was written, at the same addresses.
void testZeroAgain(JITLinkMemoryManager &M) {
  for (int I = 0; I != 2; ++I) {
    testFinal(M);
    slabjit_suite_let_go();
    check(slabjit_suite_taken() == 0, "memory is still taken");
  }
}

void testActions(JITLinkMemoryManager &M) {
  Graph X;
  for (auto *N : {"1", "2", "3"})
    X.G.allocActions().push_back({call(std::string("finalize") + N), call(std::string("deallocate") + N)});
  auto A = cantFail(M.allocate(nullptr, X.G));
  check(Log.empty(), "actions run at once");
  auto F = cantFail(A->finalize());
  check(Log == "finalize1 finalize2 finalize3 ", "at finalisation: " + Log);
  Log.clear();
  cantFail(M.deallocate(std::move(F)));
  check(Log.empty(), "ORC's share is not the last one: " + Log);
  check(X.Code->getAddress().toPtr<int (*)()>()() == 42, "code does not run");
  slabjit_suite_let_go();
  check(Log == "deallocate3 deallocate2 deallocate1 ", "at the end: " + Log);
  for (auto *B : {X.Code, X.Constant, X.Data, X.Zero})
    check(access(B->getAddress())[0] != 'r', "memory that is gone can be read");
  check(slabjit_suite_taken() == 0, "memory is still taken");
}

void testActionFails(JITLinkMemoryManager &M) {
  Graph X;
  X.G.allocActions().push_back({call("finalize1"), call("deallocate1")});
  X.G.allocActions().push_back({call("fails"), call("deallocate2")});
  auto A = cantFail(M.allocate(nullptr, X.G));
  auto F = A->finalize();
  auto Words = toString(F.takeError());
  check(Words.find("an action that fails") != std::string::npos, "the error is: " + Words);
  check(Log == "finalize1 fails deallocate1 ", "actions: " + Log);
  check(access(X.Code->getAddress())[0] != 'r', "memory of a link that failed can be read");
  check(slabjit_suite_taken() == 0, "memory is still taken");
}

void testAbandon(JITLinkMemoryManager &M) {
  Graph X;
  X.G.allocActions().push_back({call("finalize1"), call("deallocate1")});
  auto A = cantFail(M.allocate(nullptr, X.G));
  bool Done = false;
  A->abandon([&](Error E) {
    Done = true;
    check(!E, "an error");
  });
  check(Done && Log.empty(), "actions: " + Log);
  check(access(X.Data->getAddress())[0] != 'r', "abandoned memory can be read");
  check(slabjit_suite_taken() == 0, "memory is still taken");
}

} // namespace

int main() {
  // What was found before a crash is to be seen.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  auto M = slabjit_suite::createMemoryManager(0, ~uint64_t(0), false);
  struct {
    const char *Name;
    void (*Run)(JITLinkMemoryManager &);
  } Tests[] = {
      {"before finalisation: one mapping, writable", testAllocated},
      {"permissions, zero-fill and execution", testFinal},
      {"zero-fill where memory is used again", testZeroAgain},
      {"actions, and deallocation", testActions},
      {"an action that fails", testActionFails},
      {"abandon", testAbandon},
  };
  for (auto &T : Tests) {
    Test = T.Name;
    bool Before = std::exchange(Failed, false);
    T.Run(*M);
    slabjit_suite_let_go();
    if (!Failed)
      std::printf("PASS %s\n", Test);
    Failed |= Before;
  }
  return Failed;
}
