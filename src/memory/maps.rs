//! The used and the free addresses of the process (`/proc/self/maps`, proc(5)).
//!
//! The list is a snapshot, as other threads map and unmap meanwhile. It only suggests addresses to try; the kernel
//! decides.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::os;
use crate::fault::Call;
use crate::read::read;

/// The path of the list.
pub(super) const PATH: &str = "/proc/self/maps";

/// Room above the heap, which grows upwards (brk). If it cannot grow, malloc maps memory instead.
const HEAP_ROOM: usize = 64 << 20;
/// Room below the main thread's stack. The kernel keeps the stack's limit free, but at least 128 MiB (`mmap_base` in
/// arch/x86/mm/mmap.c and mm/util.c); so do we, up to 16 GiB if there is no limit.
const STACK_ROOM: Range<usize> = 128 << 20..16 << 30;

/// Returns everything mapped in this process, with the room that heap and stack grow into; ascending.
pub(super) fn taken() -> io::Result<Vec<Range<usize>>> {
    // File names need not be UTF-8.
    let text = read(Path::new(PATH), [Call::OpenMaps, Call::ReadMaps])?;
    Ok(parse(&text, os::stack_limit().clamp(STACK_ROOM.start, STACK_ROOM.end)))
}

/// Returns the number of mappings, if it can be read.
pub(super) fn count() -> Option<usize> {
    let text = read(Path::new(PATH), [Call::OpenMaps, Call::ReadMaps]).ok()?;
    Some(text.iter().filter(|&&byte| byte == b'\n').count())
}

/// Returns the lowest address that may be mapped: vm.mmap_min_addr, but at least 64 KiB.
pub(super) fn lowest_address() -> usize {
    let text = read(Path::new("/proc/sys/vm/mmap_min_addr"), [Call::OpenSetting, Call::ReadSetting]).ok();
    let configured = text.and_then(|text| str::from_utf8(&text).ok()?.trim().parse().ok());
    configured.unwrap_or(0).max(64 << 10)
}

/// Parses the list. Unknown lines are left out; the kernel refuses their addresses, as it does with later mappings.
pub(super) fn parse(text: &[u8], stack_room: usize) -> Vec<Range<usize>> {
    let mut taken: Vec<Range<usize>> = Vec::new();
    for line in text.split(|&b| b == b'\n') {
        let Some(mut addresses) = addresses(line) else { continue };
        let before = taken.last().map_or(0, |r| r.end);
        if line.ends_with(b"[stack]") {
            addresses.start = addresses.start.saturating_sub(stack_room).max(before);
        } else if line.ends_with(b"[heap]") {
            addresses.end = addresses.end.saturating_add(HEAP_ROOM);
        }
        match taken.last_mut() {
            // It adjoins the line before, or lies in the heap's room.
            Some(last) if addresses.start <= last.end => last.end = last.end.max(addresses.end),
            _ => taken.push(addresses),
        }
    }
    taken
}

fn addresses(line: &[u8]) -> Option<Range<usize>> {
    let field = line.split(|&b| b == b' ').next()?;
    let (start, end) = std::str::from_utf8(field).ok()?.split_once('-')?;
    let number = |s| usize::from_str_radix(s, 16).ok();
    let range = number(start)?..number(end)?;
    (!range.is_empty()).then_some(range)
}

/// Returns the free parts of a window.
pub(super) fn free(taken: &[Range<usize>], window: &Range<usize>) -> Vec<Range<usize>> {
    let mut free = Vec::new();
    let mut from = window.start;
    for range in taken.iter().filter(|r| r.end > window.start && r.start < window.end) {
        free.push(from..range.start);
        from = from.max(range.end);
    }
    free.push(from..window.end);
    free.retain(|r| !r.is_empty());
    free
}
