//! From the text of an expression of `x` and `y` to a library with `double expression(double x, double y)`.

use inkwell::OptimizationLevel;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::values::FloatValue;
use slabjit::{JitEngine, Library};

/// sum := product (("+" | "-") product)*; product := factor (("*" | "/") factor)*; factor := "-" factor | "(" sum ")" |
/// number | "x" | "y"
pub fn compile(engine: &JitEngine, source: &str) -> Result<Library, Box<dyn std::error::Error>> {
    let context = Context::create();
    let module = context.create_module(source);
    let number = context.f64_type();
    let function = module.add_function("expression", number.fn_type(&[number.into(), number.into()], false), None);
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, "entry"));
    let parameter = |at| function.get_nth_param(at).map(|value| value.into_float_value());
    let [Some(x), Some(y)] = [parameter(0), parameter(1)] else { return Err("it has two parameters".into()) };
    let mut parser = Parser { rest: source, builder: &builder, zero: number.const_zero(), x, y };
    let value = parser.sum()?;
    if !parser.rest.trim_start().is_empty() {
        return Err(format!("expected an operator at '{}'", parser.rest).into());
    }
    builder.build_return(Some(&value))?;
    // The library has nothing to do with the context, which ends here.
    Ok(engine.add_module(&module, OptimizationLevel::Default)?)
}

struct Parser<'a, 'ctx> {
    rest: &'a str,
    builder: &'a Builder<'ctx>,
    zero: FloatValue<'ctx>,
    x: FloatValue<'ctx>,
    y: FloatValue<'ctx>,
}

type Parsed<T> = Result<T, Box<dyn std::error::Error>>;
type Operation<'ctx> = fn(&Builder<'ctx>, FloatValue<'ctx>, FloatValue<'ctx>) -> Result<FloatValue<'ctx>, BuilderError>;

impl<'ctx> Parser<'_, 'ctx> {
    fn sum(&mut self) -> Parsed<FloatValue<'ctx>> {
        let add: Operation<'ctx> = |b, left, right| b.build_float_add(left, right, "");
        let subtract: Operation<'ctx> = |b, left, right| b.build_float_sub(left, right, "");
        self.chain(Self::product, &[('+', add), ('-', subtract)])
    }

    fn product(&mut self) -> Parsed<FloatValue<'ctx>> {
        let multiply: Operation<'ctx> = |b, left, right| b.build_float_mul(left, right, "");
        let divide: Operation<'ctx> = |b, left, right| b.build_float_div(left, right, "");
        self.chain(Self::factor, &[('*', multiply), ('/', divide)])
    }

    /// Operands with operators of one rank between them, from left to right.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Parsed<FloatValue<'ctx>>,
        operators: &[(char, Operation<'ctx>)],
    ) -> Parsed<FloatValue<'ctx>> {
        let mut value = operand(self)?;
        while let Some((_, apply)) = operators.iter().find(|(sign, _)| self.take(*sign)) {
            let right = operand(self)?;
            value = apply(self.builder, value, right)?;
        }
        Ok(value)
    }

    fn factor(&mut self) -> Parsed<FloatValue<'ctx>> {
        if self.take('-') {
            let value = self.factor()?;
            return Ok(self.builder.build_float_sub(self.zero, value, "")?);
        }
        if self.take('(') {
            let value = self.sum()?;
            return if self.take(')') { Ok(value) } else { Err(format!("expected ')' at '{}'", self.rest).into()) };
        }
        for (name, value) in [('x', self.x), ('y', self.y)] {
            if self.take(name) {
                return Ok(value);
            }
        }
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let number = number.parse().map_err(|_| format!("expected a number, x, y or '(' at '{text}'"))?;
        self.rest = rest;
        Ok(self.zero.get_type().const_float(number))
    }

    fn take(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}
