# What the scripts beside this file share; they source it. bash, in the repository's root.

# Each line: what is needed, the Debian package that brings it, and whether it is there.
have_command() { command -v "$1" >/dev/null 2>&1; }

# The versions of LLVM that there are features for.
known_versions=(15 16 17 18 19 20 21 22 23)
# Those that the package sources of this release have. ci/llvm gets the others.
llvm_versions=(15 16 19 22)

llvm_suites() { # major version: the suites of Debian's that have it, where this release has it not
    case "$1" in
        17 | 18) echo trixie ;;
        21) echo trixie trixie-backports ;;
        23) echo sid ;;
    esac
}

llvm_release() { # major version: as features and llvm-sys name it, such as 19-1
    case "$1" in
        15 | 16 | 17) echo "$1-0" ;;
        18 | 19 | 20 | 21 | 22 | 23) echo "$1-1" ;;
        *) echo "there is no feature for LLVM $1" >&2; return 1 ;;
    esac
}

llvm_prefix() { # major version: the variable that llvm-sys looks at, such as LLVM_SYS_191_PREFIX
    local release
    release=$(llvm_release "$1") || return
    echo "LLVM_SYS_${release/-/}_PREFIX"
}

# ci/llvm says in SLABJIT_LLVM_FORM how what it got is linked.
llvm_feature() { # major version: the crate's feature, such as llvm19-1
    local release
    release=$(llvm_release "$1") || return
    echo "llvm$release${SLABJIT_LLVM_FORM:-}"
}

set_features() { # major version: sets `features` to cargo's arguments, and RUSTFLAGS, for tests
    features=(--no-default-features --features "$(llvm_feature "$1"),cli,inkwell,cuda,tvm-ffi")
    # The default, spelled so that what was built for it is used.
    if [ "$1" = 19 ]; then features=(--features cli,inkwell,cuda,tvm-ffi); fi
    case " ${RUSTFLAGS:-} " in *" slabjit_faults "*) ;; *) export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }--cfg slabjit_faults" ;; esac
}

have_llvm() { # major version
    local prefix config
    prefix=$(llvm_prefix "$1") || return
    config="llvm-config-$1"
    if [ -n "${!prefix:-}" ]; then config="${!prefix}/bin/llvm-config"; fi
    have_command "$config" && [ -f "$("$config" --includedir)/llvm/ExecutionEngine/Orc/LLJIT.h" ]
}

# Whether apt has it for this release; where there is no apt, what is there is all there is.
is_packaged() { # major version
    have_llvm "$1" || case " ${llvm_versions[*]} " in *" $1 "*) ;; *) false ;; esac
}

# Prints a file to source for this LLVM on AArch64. Not is_packaged: the one for another LLVM may be set.
environment_for_aarch64() { # major version
    case " ${llvm_versions[*]} " in *" $1 "*) ci/aarch64 ;; *) ci/llvm --aarch64 "$1" ;; esac
}

# Sets what cargo needs for this LLVM where apt has it not.
use_llvm() { # major version
    local file
    if is_packaged "$1"; then return; fi
    # Each says how programs are linked.
    if [ -n "${SLABJIT_LLVM_ROOT:-}${SLABJIT_LLVM_FORM:-}" ]; then echo "one LLVM of ci/llvm at a time, not also $1" >&2; return 2; fi
    file=$(ci/llvm "$1") || return
    # shellcheck disable=SC1090 # made by ci/llvm
    . "$file"
}

# Debian 12 has it in qemu-user-static, as one program without libraries; later ones in qemu-user.
qemu_aarch64() { command -v qemu-aarch64-static || command -v qemu-aarch64; }
# What runs a program in a system's root, given its path. glib's slices, which QEMU below 8.0 allocates with, stay locked in a child when
# another thread has them at the fork: the child hangs before it begins.
aarch64_runner() { echo "G_SLICE=always-malloc exec $(qemu_aarch64) -U G_SLICE -L '$1' \"\$@\""; }

# Prints the packages that are missing for the needs given: gcc, g++, llvm-N, clang-N, llc-N, lld-N, lldb-N, g++-aarch64, qemu-aarch64,
# mpirun, strace, valgrind, gdb, gdb-multiarch, perf, xz, python3, python3-venv, and library-PACKAGE for a package by its own name.
missing_packages() {
    local need
    for need in "$@"; do
        case "$need" in
            gcc) have_command gcc || echo gcc ;;
            g++) have_command g++ || echo g++ ;;
            binutils) { have_command ld && have_command ar; } || echo binutils ;;
            binutils-aarch64-linux-gnu) have_command aarch64-linux-gnu-ld || echo "$need" ;;
            llvm-*) have_llvm "${need#llvm-}" || echo "$need-dev" ;;
            clang-*) have_command "$need" || echo "$need" ;;
            llc-*) have_command "$need" || echo "llvm-${need#llc-}" ;;
            lld-*) have_command "ld.$need" || echo "$need" ;;
            valgrind) have_command valgrind || echo valgrind ;;
            gdb | gdb-multiarch) have_command "$need" || echo "$need" ;;
            perf) have_command perf || echo linux-perf ;;
            lldb-*) have_command "$need" || echo "$need" ;;
            mpirun) have_command mpirun || echo openmpi-bin ;;
            python3) have_command python3 || echo python3 ;;
            python3-venv) python3 -c "import ensurepip" 2>/dev/null || echo python3-venv ;;
            g++-aarch64) have_command aarch64-linux-gnu-g++ || echo g++-aarch64-linux-gnu ;;
            xz) have_command xz || echo xz-utils ;;
            strace) have_command strace || echo strace ;;
            qemu-aarch64) qemu_aarch64 >/dev/null || echo qemu-user-static ;;
            library-*) dpkg-query -W -f '${Status}' "${need#library-}" 2>/dev/null | grep -q ' installed' || echo "${need#library-}" ;;
            *) echo "unknown need '$need'" >&2; return 1 ;;
        esac
    done
}

# Installs what is missing, as root or through sudo; else says what to run. Does nothing, quickly, when nothing is missing.
install_missing() {
    have_command cargo || { echo "cargo is missing: install Rust (rustup), version 1.88 or newer" >&2; exit 1; }
    local packages as_root=()
    packages=$(missing_packages "$@" | sort -u | tr '\n' ' ')
    if [ -z "${packages// /}" ]; then return; fi
    # Never at the price of a package that is there; and another script may be at it.
    local install="apt-get install -o DPkg::Lock::Timeout=600 -y --no-remove --no-install-recommends $packages"
    if ! have_command apt-get; then
        echo "missing: $packages(names of Debian's packages); there is no apt-get to install them with" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if have_command sudo && sudo -n true 2>/dev/null; then
            as_root=(sudo -n)
        else
            echo "missing: $packages" >&2
            echo "run this, then try again:" >&2
            echo "  sudo apt-get update && sudo $install" >&2
            exit 1
        fi
    fi
    echo "installing $packages" >&2
    "${as_root[@]}" apt-get update -qq </dev/null >&2 || true
    # shellcheck disable=SC2086 # a list of words
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install </dev/null >&2; then
        echo "this failed, run it yourself: $install" >&2
        exit 1
    fi
    if [ -n "$(missing_packages "$@")" ]; then
        echo "still missing after installing: $(missing_packages "$@" | tr '\n' ' ')" >&2
        exit 1
    fi
}

# A state of apt's own in a folder, from an empty list of installed packages, with the machine's sources for amd64 and arm64: what it
# resolves and downloads is independent of what is installed. Afterwards `private COMMAND...` runs a command with it.
private_apt() { # folder, deb-src for source packages instead, and suites in place of the machine's own
    apt=$1
    local tool file kind=${2:-deb} suites=("${@:3}")
    for tool in apt-get apt-cache dpkg-deb; do
        have_command "$tool" || { echo "$tool is missing: this needs Debian, or a system made of it" >&2; exit 1; }
    done
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,sources}
    : >"$apt/status"
    cat >"$apt/conf" <<CONF
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Cache::archives "$apt/cache/archives";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
APT::Architecture "amd64";
APT::Architectures { "amd64"; "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
    # The machine's sources, in both forms, asked for both architectures.
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        # "deb [options] URI suite component…"; what says which architectures goes.
        sed -nE '
            /^[[:space:]]*deb[[:space:]]/!d
            s/(\[[^]]*)\barch[+-]?=[^] ]*/\1/
            /^[[:space:]]*deb[[:space:]]+\[/!s/^[[:space:]]*deb[[:space:]]/deb [] /
            s/\[/[arch=amd64,arm64 /
            s/^[[:space:]]*deb/'"$kind"'/
            p' "$file" >"$apt/sources/$(basename "$file")"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        sed -E '/^Architectures:/Id; s/^(Types:).*/\1 '"$kind"'\nArchitectures: amd64 arm64/I' "$file" >"$apt/sources/$(basename "$file")"
    done
    if [ ${#suites[@]} -gt 0 ]; then use_suites "${suites[@]}"; fi
    # A source that has nothing for one of them, or is not reached, need not be one of those that count: what is missing is seen later.
    private apt-get -qq update >&2 || echo "some package sources were not read" >&2
}
private() { APT_CONFIG="$apt/conf" "$@" </dev/null; }

# Has the private apt read other suites of the same sources. Security updates have sources of their own, and go.
use_suites() { # suite...
    local list suite
    for list in "$apt"/sources/*; do
        case "$list" in
            *.sources) awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' "$list" | sed "s/^Suites:.*/Suites: $*/" >"$apt/list" ;;
            *) for suite in "$@"; do sed -E "/security/d; s/^(deb[^ ]* \[[^]]*\] +[^ ]+) +[^ ]+/\1 $suite/" "$list"; done | sort -u >"$apt/list" ;;
        esac
        mv "$apt/list" "$list"
    done
}

# Prints the command that is pip: that of python3, or of a virtual environment that is made for it, as Debian's python3 has none.
python_pip() {
    if python3 -m pip --version >/dev/null 2>&1; then echo "python3 -m pip"; return; fi
    local folder=${SLABJIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slabjit}/pip
    [ -x "$folder/bin/pip" ] || python3 -m venv "$folder" >&2 || return
    echo "$folder/bin/pip"
}

# Downloads the upstream part of a source package into $apt/download: of the upstream version given, else the newest. Where this release's
# sources have it no more (those of security updates go when the next update comes), that of unstable. After private_apt FOLDER deb-src.
source_package() { # package [upstream version]
    if download_source "$@"; then return; fi
    echo "the source of $1 ${2:-} is not there for this release, looking in unstable" >&2
    use_suites sid
    private apt-get -qq update >&2
    download_source "$@" || { echo "the package sources have no source of $1 ${2:-}" >&2; return 1; }
}
download_source() {
    local version
    # Lists name what a mirror has no more.
    for version in $(private apt-cache showsrc --only-source "$1" 2>/dev/null | sed -n 's/^Version: *//p' |
        grep -E "^([0-9]+:)?${2:+${2//./\\.}-}" | sort -rV); do
        rm -rf "$apt/download"
        mkdir "$apt/download"
        if (cd "$apt/download" && private apt-get -qq source --download-only --tar-only "$1=$version" >&2); then return; fi
    done
    return 1
}

# Prints the folder with what the scripts use of the source of an installed LLVM, or of the one of ci/llvm in use, after getting it: its
# ExecutionEngine's and ORC runtime's tests, and the source of llvm-jitlink. By one script at a time: they share it.
llvm_source() { # major version
    local upstream folder suites=() cache=${SLABJIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slabjit}/llvm-source
    upstream=$("llvm-config-$1" --version) || return
    folder=$cache/$upstream
    if [ -n "${SLABJIT_LLVM_ROOT:-}" ]; then read -ra suites <<<"$(llvm_suites "$1")"; fi
    mkdir -p "$cache"
    (
        flock 8
        if [ -f "$folder/complete" ]; then exit; fi
        echo "getting the source of LLVM $upstream" >&2
        rm -rf "$folder" "$cache/apt"
        private_apt "$cache/apt" deb-src "${suites[@]}"
        # Another release of that version has nearly the same tests.
        source_package "llvm-toolchain-$1" "$upstream" || source_package "llvm-toolchain-$1" || exit
        mkdir -p "$folder"
        tar -xf "$apt"/download/*.orig.tar.* -C "$folder" --strip-components=1 --no-same-owner --wildcards \
            '*/llvm/test/ExecutionEngine/*' '*/llvm/tools/llvm-jitlink/*' '*/llvm/LICENSE.TXT' '*/compiler-rt/test/orc/*' || exit
        rm -rf "$cache/apt"
        touch "$folder/complete"
    ) 8>"$cache/lock" || return
    echo "$folder"
}
