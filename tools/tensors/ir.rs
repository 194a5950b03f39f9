//! Kernels as text of LLVM IR.

use std::fmt::Write as _;

use crate::expressions::{Expression, Kernel, Operation, Tensor};

/// One module: the kernels, a table of them, and `network`, which calls those whose numbers it is given
/// ([`Network`](crate::sides::Network)). Attributes are those of all functions.
pub fn module(kernels: &[Kernel], attributes: &str) -> String {
    let mut text = String::new();
    for (number, kernel) in kernels.iter().enumerate() {
        define(&mut text, number, kernel);
    }
    let table: Vec<String> = (0..kernels.len()).map(|number| format!("ptr @kernel_{number}")).collect();
    let (count, table) = (table.len(), table.join(", "));
    text += &format!(
        "@table = internal constant [{count} x ptr] [{table}]
define void @network(ptr %numbers, i64 %count, ptr %out, ptr %a, ptr %b, i64 %n) #0 {{
entry:
  br label %step
step:
  %i = phi i64 [0, %entry], [%next, %step]
  %number.at = getelementptr inbounds i32, ptr %numbers, i64 %i
  %number = load i32, ptr %number.at
  %entry.at = getelementptr inbounds ptr, ptr @table, i32 %number
  %kernel = load ptr, ptr %entry.at
  %offset = mul nuw nsw i64 %i, %n
  %out.at = getelementptr inbounds float, ptr %out, i64 %offset
  call void %kernel(ptr %out.at, ptr %a, ptr %b, i64 %n)
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %step, label %end
end:
  ret void
}}
attributes #0 = {{ {attributes} }}
"
    );
    text
}

fn define(text: &mut String, number: usize, kernel: &Kernel) {
    *text += &format!(
        "define void @kernel_{number}(ptr noalias %out, ptr noalias %a, ptr noalias %b, i64 %n) #0 {{
entry:
  br label %step
step:
  %i = phi i64 [0, %entry], [%next, %step]
"
    );
    if kernel.is_sum {
        *text += "  %sum = phi float [0.0, %entry], [%summed, %step]\n";
    }
    *text += "  %a.at = getelementptr inbounds float, ptr %a, i64 %i
  %b.at = getelementptr inbounds float, ptr %b, i64 %i
  %x = load float, ptr %a.at
  %y = load float, ptr %b.at
";
    let element = value(text, &kernel.element, &mut 0);
    if kernel.is_sum {
        *text += &format!("  %summed = fadd float %sum, {element}\n");
    } else {
        *text += &format!(
            "  %out.at = getelementptr inbounds float, ptr %out, i64 %i\n  store float {element}, ptr %out.at\n"
        );
    }
    *text += "  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %step, label %end
end:
";
    if kernel.is_sum {
        *text += "  store float %summed, ptr %out\n";
    }
    *text += "  ret void\n}\n";
}

/// Writes what computes it, and returns what it is called.
fn value(text: &mut String, expression: &Expression, last: &mut u32) -> String {
    let (operation, sides) = match expression {
        Expression::Element(Tensor::A) => return "%x".into(),
        Expression::Element(Tensor::B) => return "%y".into(),
        Expression::Constant(value) => return format!("0x{:016X}", f64::from(*value).to_bits()),
        Expression::Binary(operation, sides) => (operation, sides),
    };
    let left = value(text, &sides.0, last);
    let right = value(text, &sides.1, last);
    *last += 1;
    let this = format!("%v{last}");
    // Writing to a string does not fail.
    let _ = match operation {
        Operation::Add => writeln!(text, "  {this} = fadd float {left}, {right}"),
        Operation::Subtract => writeln!(text, "  {this} = fsub float {left}, {right}"),
        Operation::Multiply => writeln!(text, "  {this} = fmul float {left}, {right}"),
        Operation::Maximum => writeln!(
            text,
            "  %c{last} = fcmp ogt float {left}, {right}\n  {this} = select i1 %c{last}, float {left}, float {right}"
        ),
    };
    this
}
