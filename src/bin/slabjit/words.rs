//! Errors in the words of the command line: the library's own messages name its methods, which the program's user does
//! not have.

use std::fmt::Write as _;
use std::path::Path;

#[cfg(feature = "inkwell")]
use slabjit::IrError;
use slabjit::{
    Error, FarReference, FileKind, ImageError, LibraryError, LinkError, MemoryError, NoImage, ObjectError, SymbolHint,
    SymbolMissing, UndefinedSymbol,
};

use crate::input::name_of;
use crate::output::{escaped as e, escaped_lines};

/// Returns the error's message, with the option or input that helps.
pub(crate) fn of(error: &Error) -> String {
    match error {
        Error::Io { path, source } => format!("cannot read '{}': {source}", name_of(path)),
        Error::Image(error) => of_image(error),
        Error::Object(ObjectError::ArchiveNotObject { object }) => {
            format!("'{}' is an archive in an archive; extract it (ar x), and give it by itself", e(object))
        }
        Error::Object(ObjectError::LinkedFileNotObject { object, kind }) => format!(
            "'{}' is a linked ELF file ({kind}), not a relocatable object; give a shared object with --library, or \
             compile with -c",
            e(object)
        ),
        Error::Object(ObjectError::BitcodeNotObject { object }) => format!(
            "'{}' is LLVM bitcode, not an object; compile it first (llc -filetype=obj, clang without -flto), or give \
             it by itself and not in an archive",
            e(object)
        ),
        Error::Object(ObjectError::ObjectTooLarge { object, bytes, limit }) => {
            too_much(object, *bytes, "bytes", *limit)
        }
        Error::Object(ObjectError::TooManySections { object, count, limit }) => {
            too_much(object, *count, "sections", *limit)
        }
        Error::Object(ObjectError::TooManyRelocations { object, count, limit }) => {
            too_much(object, *count, "relocations", *limit)
        }
        Error::Object(ObjectError::DecompressedTooLarge { object, bytes, limit, .. }) => {
            too_much(object, *bytes, "bytes of decompressed sections", *limit)
        }
        Error::Object(ObjectError::MappedTooLarge { object, bytes, limit, .. }) => {
            too_much(object, *bytes, "bytes to map", *limit)
        }
        Error::Object(ObjectError::WorkingMemoryTooLarge { object, bytes, limit }) => {
            too_much(object, *bytes, "bytes of sections, symbols and relocations in memory", *limit)
        }
        Error::Object(ObjectError::TooMuchWork { object, work, limit }) => {
            too_much(object, *work, "bytes of names that its relocations refer to", *limit)
        }
        Error::Object(ObjectError::ExecutableStack { object }) => format!(
            "'{}' asks for executable stacks (section '.note.GNU-stack' is executable), which nested functions of GNU \
             C need whose addresses are taken; use functions that are not nested (in assembly: .section \
             .note.GNU-stack,\"\",@progbits), or allow it with --executable-stack",
            e(object)
        ),
        Error::Link(LinkError::DuplicateDefinition { symbol, first, second, .. }) => format!(
            "'{}' is defined twice: by '{}' and by '{}'; leave one of them out, or make one weak",
            e(symbol),
            e(first),
            e(second)
        ),
        Error::Link(LinkError::UndefinedSymbols { symbols, .. }) => undefined(symbols),
        Error::Library(LibraryError::SymbolNotFound {
            symbol,
            reason: SymbolMissing::Undefined { defined, more },
            ..
        }) => format!(
            "no object or archive defines the entry '{}'{}; name the function to call with --entry",
            e(symbol),
            instead(defined, *more)
        ),
        Error::Library(LibraryError::SymbolNotFound { symbol, reason: SymbolMissing::NotInDylib, .. }) => {
            format!("no input defines the entry '{}'; name the function to call with --entry", e(symbol))
        }
        Error::Library(LibraryError::WrongSymbolKind { symbol, .. }) => {
            format!("the entry '{}' is data; name a function with --entry", e(symbol))
        }
        Error::Library(LibraryError::ThreadLocalSymbol { symbol, .. }) => {
            format!("the entry '{}' is a thread-local variable; name a function with --entry", e(symbol))
        }
        Error::Library(LibraryError::NullSymbol { symbol, .. }) => {
            format!("'{0}' has the address 0, where nothing can be; give it another with --define {0}=ADDR", e(symbol))
        }
        Error::Library(LibraryError::SharedLibraryNotFound { path }) => format!(
            "there is no shared library at '{}'; give --library the path it has, or its name alone and its folder \
             with -L, or a name that the dynamic loader finds (LD_LIBRARY_PATH)",
            name_of(path)
        ),
        Error::Library(LibraryError::NotASharedLibrary { path, found }) => {
            let use_of = match found {
                FileKind::Archive | FileKind::RelocatableObject => "; give it without --library",
                FileKind::LinkerScript => "; give the file that it names, such as libc.so.6",
                _ => "",
            };
            format!("--library '{}' is no shared library for this machine, but {found}{use_of}", name_of(path))
        }
        Error::Library(LibraryError::SharedLibrary { path, source }) => format!(
            "cannot open shared library '{}': {}; give --library a path, or a name and its folder with -L, or a name \
             that the dynamic loader finds (LD_LIBRARY_PATH)",
            name_of(path),
            e(&innermost(&**source))
        ),
        Error::Link(LinkError::ReferencesOutOfRange { object, references, more }) => {
            out_of_range(object, references, *more)
        }
        Error::Memory(MemoryError::ArenaPlacement { place, window, requested, minimum, largest_free, source }) => {
            format!(
                "cannot place an arena {place}, of {requested} bytes or of fewer down to {minimum}: it has to lie in \
                 {:#x}..{:#x}, the largest free piece there has {largest_free} bytes ({source}); choose another \
                 --place",
                window.start, window.end
            )
        }
        Error::Memory(MemoryError::LibrariesApart { lowest, highest, span }) => format!(
            "no arena can be within 2 GiB of all loaded libraries: '{}' begins at {:#x} and '{}' ends at {:#x}; \
             compile with -fPIC and choose --place anywhere",
            e(lowest),
            span.start,
            e(highest),
            span.end
        ),
        Error::Memory(MemoryError::ArenaExhausted {
            object,
            requested,
            section,
            section_bytes,
            largest_free,
            arena_bytes,
        }) => format!(
            "the arena is exhausted: '{}' needs {requested} bytes in one piece (its largest section is '{}' with \
             {section_bytes}), the largest free piece has {largest_free} of the arena's {arena_bytes}; give fewer \
             objects, or put large data into a large section (-mcmodel=medium or large), which may lie outside",
            e(object),
            e(section)
        ),
        Error::Memory(MemoryError::MappingLimit { object, mappings, limit }) => format!(
            "'{}' needs mappings of its own, and the process has {mappings} of the {limit} that vm.max_map_count \
             allows (the last ones are left to malloc and the dynamic loader); choose --layout packed, give fewer \
             objects, or raise the limit (sysctl vm.max_map_count)",
            e(object)
        ),
        // LLVM's messages may have several lines.
        Error::Link(LinkError::Failed { .. }) => escaped_lines(&error.to_string()),
        #[cfg(feature = "inkwell")]
        Error::Ir(IrError::Invalid { .. } | IrError::CodeGeneration { .. }) => escaped_lines(&error.to_string()),
        _ => e(&error.to_string()),
    }
}

fn of_image(error: &ImageError) -> String {
    match error {
        ImageError::Empty => "an image needs an object; give one, or an archive that has one".to_owned(),
        ImageError::NotAnImage { object, kind: NoImage::Foreign } => format!(
            "'{}' is a shared object that another linker has made; give it with --library, or link its objects with \
             slabjit link",
            e(object)
        ),
        ImageError::NotAnImage { object, .. } => format!("'{}' is no image; make one with slabjit link", e(object)),
        ImageError::NotAlone { object } => {
            format!("'{}' is an image, which runs alone; link it together with the other objects", e(object))
        }
        ImageError::Far { object, offset, relocation } => format!(
            "'{}', address {offset:#x}: {relocation} does not reach another segment; run it with --layout per-object",
            e(object)
        ),
        ImageError::Cpu { object, function, offset, feature } => format!(
            "'{}' of '{}' at +{offset:#x} needs {feature}; this CPU has not got it; if the function asks the CPU \
             before it uses this, link the image with --cpu {}=",
            e(function),
            e(object),
            e(function)
        ),
        ImageError::UnknownFunction { function } => {
            format!("no object defines the function '{}' of --cpu", e(function))
        }
        ImageError::UnknownKernel { kernel } => {
            format!("no object exports the kernel '{}' of --contract; name a function as C does", e(kernel))
        }
        other => escaped_lines(&other.to_string()),
    }
}

fn instead(defined: &[String], more: usize) -> String {
    if defined.is_empty() {
        return ", nor any other symbol".to_owned();
    }
    let defined: Vec<_> = defined.iter().map(|name| e(name)).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("; they define {}{more}", defined.join(", "))
}

fn too_much(object: &str, count: u64, what: &str, limit: u64) -> String {
    format!("'{}' has {count} {what}, and at most {limit} are taken", e(object))
}

fn undefined(symbols: &[UndefinedSymbol]) -> String {
    let mut s = format!("{} undefined symbol(s):", symbols.len());
    for symbol in symbols {
        let from: Vec<_> = symbol.referenced_by.iter().map(|from| e(from)).collect();
        let _ = write!(s, "\n  {} (from {})", e(&symbol.name), from.join(", "));
        for path in &symbol.exported_by {
            let _ = write!(s, "\n    is exported by {0}; add --library {0}", name_of(path));
        }
    }
    let mut told = Vec::new();
    for (name, hint) in symbols.iter().filter_map(|symbol| Some((&symbol.name, symbol.hint()?))) {
        if !told.contains(&hint) {
            let _ = write!(s, "\n{} {}", e(name), of_name(hint));
            told.push(hint);
        }
    }
    s.push_str(
        "\ngive an object or archive that defines them, a shared library with --library (-L FOLDER finds out which), or an address with \
         --define NAME=ADDR",
    );
    s
}

/// Returns a hint about an undefined name, to follow the name.
pub(crate) fn of_name(hint: SymbolHint) -> &'static str {
    match hint {
        SymbolHint::Linker => {
            "is a bound of the file that a linker writes, and there is no such file here; give it an address (--define), declare it \
             weak to have 0, or link the object into a shared library"
        }
        SymbolHint::Libgcc => "is in libgcc.a: give that, too (gcc -print-libgcc-file-name says where it is)",
        SymbolHint::TvmFfi => "is libtvm_ffi.so's: give that with --library",
        _ => "is known to be missing",
    }
}

fn out_of_range(object: &str, references: &[FarReference], more: usize) -> String {
    const SHOWN: usize = 16;
    let count = references.len() + more;
    let mut s = format!("'{}' has {count} reference(s) that cannot be made:", e(object));
    for reference in references.iter().take(SHOWN) {
        let mut reference = reference.clone();
        reference.remedy = remedy(&reference);
        for name in [&mut reference.section, &mut reference.symbol].into_iter().chain(&mut reference.function) {
            *name = e(name);
        }
        let _ = write!(s, "\n  {reference}");
    }
    if count > SHOWN {
        let _ = write!(s, "\n  and {} more", count - SHOWN);
    }
    s
}

fn remedy(reference: &FarReference) -> &'static str {
    let (least, greatest) = reference.limit;
    if (least..=greatest).contains(&reference.value) {
        // A misaligned reference is in range; no option helps.
        reference.remedy
    } else if reference.target == Some(reference.value as u64) {
        "a field of this width holds low addresses only: compile with -fPIC (-fPIE is not enough for code outside the objects), or \
         choose --place low2g if the target is in the objects"
    } else {
        "nothing can be put between: compile with -fPIC, or choose --place near-libraries if the target is in a library"
    }
}

/// Returns the message of the last error in a chain, which says most.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Joins paths.
pub(crate) fn paths<P: AsRef<Path>>(paths: &[P]) -> String {
    paths.iter().map(|path| name_of(path.as_ref())).collect::<Vec<_>>().join(", ")
}
