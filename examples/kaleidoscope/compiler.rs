//! From text to modules: one pass, which writes LLVM IR as it parses. All values are `double`.
//!
//! item := "extern" prototype | "def" prototype expression | expression; each may end with ";"
//! prototype := name "(" name* ")" | "binary" sign rank? "(" name name ")" | "unary" sign "(" name ")"
//! expression := operand (sign operand)*; operand := sign operand | primary
//! primary := number | name | name "(" expressions ")" | "(" expression ")" | "if" e "then" e "else" e |
//!            "for" name "=" start "," condition ("," step)? "in" e | "var" (name ("=" e)?)+ "in" e

use std::collections::HashMap;
use std::fmt::Write as _;

use super::Result;

pub enum Item {
    /// A function: its name, that of its code, which differs if the name was defined before, and the module with it.
    Function { name: String, symbol: String, module: String },
    /// A function without arguments, to be run once.
    Expression { symbol: String, module: String },
}

pub struct Compiler<'a> {
    rest: &'a str,
    /// The number of arguments of each function.
    functions: HashMap<String, usize>,
    definitions: HashMap<String, usize>,
    ranks: HashMap<char, u32>,
    expressions: usize,
    /// The function at hand.
    body: Body,
}

#[derive(Default)]
struct Body {
    /// Variables lie in memory, until the optimiser takes them into registers.
    variables: HashMap<String, String>,
    allocations: String,
    code: String,
    block: String,
    next: usize,
    /// Functions that it calls.
    called: HashMap<String, usize>,
}

impl<'a> Compiler<'a> {
    pub fn new(source: &'a str) -> Self {
        let ranks = HashMap::from([('=', 2), ('<', 10), ('+', 20), ('-', 20), ('*', 40)]);
        let (functions, definitions, body) = Default::default();
        Self { rest: source, functions, definitions, ranks, expressions: 0, body }
    }

    pub fn next(&mut self) -> Result<Option<Item>> {
        loop {
            while self.sign(';') {}
            if self.text().is_empty() {
                return Ok(None);
            }
            self.body = Body { block: "entry".into(), ..Body::default() };
            if self.word("extern") {
                let (name, arguments) = self.prototype()?;
                self.declare(&name, arguments.len())?;
            } else if self.word("def") {
                let (name, arguments) = self.prototype()?;
                self.declare(&name, arguments.len())?;
                let times = self.definitions.entry(name.clone()).or_default();
                let symbol = if *times == 0 { name.clone() } else { format!("{name}.{times}") };
                *times += 1;
                let module = self.function(&symbol, &arguments)?;
                return Ok(Some(Item::Function { name, symbol, module }));
            } else {
                self.expressions += 1;
                let symbol = format!("expression.{}", self.expressions);
                let module = self.function(&symbol, &[])?;
                return Ok(Some(Item::Expression { symbol, module }));
            }
        }
    }

    fn declare(&mut self, name: &str, arguments: usize) -> Result<()> {
        match self.functions.insert(name.to_owned(), arguments) {
            Some(before) if before != arguments => {
                Err(format!("'{name}' had {before} arguments before, and has {arguments} here").into())
            }
            _ => Ok(()),
        }
    }

    fn prototype(&mut self) -> Result<(String, Vec<String>)> {
        let mut name = self.name()?;
        let operands = match &*name {
            "unary" => 1,
            "binary" => 2,
            _ => 0,
        };
        if operands > 0 {
            let sign = self.any_sign().ok_or("expected an operator")?;
            name.push(sign);
            if operands == 2 {
                let rank = self.number().unwrap_or(30.0) as u32;
                self.ranks.insert(sign, rank);
            }
        }
        self.expect('(')?;
        let mut arguments = Vec::new();
        while !self.sign(')') {
            arguments.push(self.name()?);
        }
        if operands > 0 && arguments.len() != operands {
            return Err(format!("'{name}' has {} operands", arguments.len()).into());
        }
        Ok((name, arguments))
    }

    /// Parses a function's expression, and returns the module with it.
    fn function(&mut self, symbol: &str, arguments: &[String]) -> Result<String> {
        for (at, argument) in arguments.iter().enumerate() {
            self.variable(argument, &format!("%{at}"));
        }
        // Names of values follow those of the arguments.
        let value = self.expression()?;
        let parameters = vec!["double"; arguments.len()].join(", ");
        let Body { allocations, code, called, .. } = &self.body;
        let mut module = String::new();
        for (name, arguments) in called.iter().filter(|(name, _)| *name != symbol) {
            writeln!(module, "declare double @\"{name}\"({})", vec!["double"; *arguments].join(", "))?;
        }
        writeln!(
            module,
            "define double @\"{symbol}\"({parameters}) {{\nentry:\n{allocations}{code} ret double {value}\n}}"
        )?;
        Ok(module)
    }

    fn expression(&mut self) -> Result<String> {
        let left = self.operand()?;
        self.operators(left, 0)
    }

    /// Applies operators of this rank and above to what stands before them.
    fn operators(&mut self, mut left: String, least: u32) -> Result<String> {
        while let Some((sign, rank)) = self.operator().filter(|(_, rank)| *rank >= least) {
            let target =
                self.body.variables.iter().find(|(_, place)| left.starts_with(&format!("%load.{}.", &place[1..])));
            let target = target.map(|(_, place)| place.clone());
            self.sign(sign);
            let mut right = self.operand()?;
            if self.operator().is_some_and(|(_, next)| next > rank) {
                right = self.operators(right, rank + 1)?;
            }
            left = match sign {
                '=' => {
                    let place = target.ok_or("the left of '=' has to be a variable")?;
                    self.body.code.push_str(&format!(" store double {right}, ptr {place}\n"));
                    right
                }
                '+' => self.value(&format!("fadd double {left}, {right}")),
                '-' => self.value(&format!("fsub double {left}, {right}")),
                '*' => self.value(&format!("fmul double {left}, {right}")),
                '<' => {
                    let less = self.value(&format!("fcmp ult double {left}, {right}"));
                    self.value(&format!("uitofp i1 {less} to double"))
                }
                _ => self.call(&format!("binary{sign}"), &[left, right])?,
            };
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<String> {
        let sign = self.text().chars().next().filter(|c| c.is_ascii_punctuation() && !"(,.".contains(*c));
        match sign {
            Some(sign) => {
                self.sign(sign);
                let operand = self.operand()?;
                self.call(&format!("unary{sign}"), &[operand])
            }
            None => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<String> {
        if let Some(number) = self.number() {
            return Ok(format!("0x{:016X}", number.to_bits()));
        }
        if self.sign('(') {
            let value = self.expression()?;
            self.expect(')')?;
            return Ok(value);
        }
        let name = self.name()?;
        match &*name {
            "if" => self.choice(),
            "for" => self.repetition(),
            "var" => self.variables(),
            _ if self.sign('(') => {
                let mut arguments = Vec::new();
                while !self.sign(')') {
                    if !arguments.is_empty() {
                        self.expect(',')?;
                    }
                    arguments.push(self.expression()?);
                }
                self.call(&name, &arguments)
            }
            _ => {
                let place = self.body.variables.get(&name).ok_or_else(|| format!("there is no variable '{name}'"))?;
                let place = place.clone();
                self.body.next += 1;
                let value = format!("%load.{}.{}", &place[1..], self.body.next);
                writeln!(self.body.code, " {value} = load double, ptr {place}")?;
                Ok(value)
            }
        }
    }

    fn choice(&mut self) -> Result<String> {
        let condition = self.condition()?;
        let [yes, no, end] = self.labels(["then", "else", "end"]);
        writeln!(self.body.code, " br i1 {condition}, label %{yes}, label %{no}")?;
        let mut results = Vec::new();
        for (word, label) in [("then", &yes), ("else", &no)] {
            if !self.word(word) {
                return Err(format!("expected '{word}' at '{}'", self.text()).into());
            }
            self.begin(label);
            let value = self.expression()?;
            writeln!(self.body.code, " br label %{end}")?;
            results.push(format!("[ {value}, %{} ]", self.body.block));
        }
        self.begin(&end);
        Ok(self.value(&format!("phi double {}", results.join(", "))))
    }

    /// Runs the body, then the step, and again if the condition held before.
    fn repetition(&mut self) -> Result<String> {
        let name = self.name()?;
        self.expect('=')?;
        let start = self.expression()?;
        self.expect(',')?;
        let before = self.body.variables.get(&name).cloned();
        let place = self.variable(&name, &start);
        // The condition and the step stand before the body.
        let condition_text = self.skip()?;
        let step_text = if self.sign(',') { Some(self.skip()?) } else { None };
        if !self.word("in") {
            return Err(format!("expected 'in' at '{}'", self.text()).into());
        }
        let [body, end] = self.labels(["loop", "end"]);
        writeln!(self.body.code, " br label %{body}")?;
        self.begin(&body);
        self.expression()?;
        let step = step_text.map_or_else(|| Ok(format!("0x{:016X}", 1f64.to_bits())), |text| self.parse(text))?;
        let held = self.parse(condition_text)?;
        let held = self.value(&format!("fcmp one double {held}, 0.0"));
        let now = self.value(&format!("load double, ptr {place}"));
        let next = self.value(&format!("fadd double {now}, {step}"));
        writeln!(self.body.code, " store double {next}, ptr {place}\n br i1 {held}, label %{body}, label %{end}")?;
        self.begin(&end);
        self.restore(name, before);
        Ok("0.0".into())
    }

    fn variables(&mut self) -> Result<String> {
        let mut hidden = Vec::new();
        loop {
            let name = self.name()?;
            let start = if self.sign('=') { self.expression()? } else { "0.0".into() };
            hidden.push((name.clone(), self.body.variables.get(&name).cloned()));
            self.variable(&name, &start);
            if !self.sign(',') {
                break;
            }
        }
        if !self.word("in") {
            return Err(format!("expected 'in' at '{}'", self.text()).into());
        }
        let value = self.expression()?;
        hidden.into_iter().rev().for_each(|(name, before)| self.restore(name, before));
        Ok(value)
    }

    fn condition(&mut self) -> Result<String> {
        let value = self.expression()?;
        Ok(self.value(&format!("fcmp one double {value}, 0.0")))
    }

    fn call(&mut self, name: &str, arguments: &[String]) -> Result<String> {
        match self.functions.get(name) {
            None => return Err(format!("there is no function '{name}'").into()),
            Some(n) if *n != arguments.len() => {
                return Err(format!("'{name}' takes {n} arguments, not {}", arguments.len()).into());
            }
            Some(n) => self.body.called.insert(name.to_owned(), *n),
        };
        let arguments: Vec<_> = arguments.iter().map(|argument| format!("double {argument}")).collect();
        Ok(self.value(&format!("call double @\"{name}\"({})", arguments.join(", "))))
    }

    // ---- text of IR ----

    fn value(&mut self, instruction: &str) -> String {
        self.body.next += 1;
        let name = format!("%v{}", self.body.next);
        self.body.code.push_str(&format!(" {name} = {instruction}\n"));
        name
    }

    fn labels<const N: usize>(&mut self, names: [&str; N]) -> [String; N] {
        self.body.next += 1;
        names.map(|name| format!("{name}{}", self.body.next))
    }

    fn begin(&mut self, label: &str) {
        self.body.code.push_str(&format!("{label}:\n"));
        self.body.block = label.to_owned();
    }

    fn variable(&mut self, name: &str, start: &str) -> String {
        self.body.next += 1;
        let place = format!("%place{}", self.body.next);
        self.body.allocations.push_str(&format!(" {place} = alloca double\n"));
        self.body.code.push_str(&format!(" store double {start}, ptr {place}\n"));
        self.body.variables.insert(name.to_owned(), place.clone());
        place
    }

    fn restore(&mut self, name: String, before: Option<String>) {
        match before {
            Some(place) => self.body.variables.insert(name, place),
            None => self.body.variables.remove(&name),
        };
    }

    // ---- text of the program ----

    /// What is left, from the next token on.
    fn text(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        while self.rest.starts_with('#') {
            self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]).trim_start();
        }
        self.rest
    }

    fn sign(&mut self, sign: char) -> bool {
        let rest = self.text().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, sign: char) -> Result<()> {
        if self.sign(sign) { Ok(()) } else { Err(format!("expected '{sign}' at '{}'", self.text()).into()) }
    }

    fn any_sign(&mut self) -> Option<char> {
        let sign = self.text().chars().next().filter(char::is_ascii_punctuation)?;
        self.sign(sign).then_some(sign)
    }

    fn operator(&mut self) -> Option<(char, u32)> {
        let sign = self.text().chars().next()?;
        self.ranks.get(&sign).map(|rank| (sign, *rank))
    }

    fn word(&mut self, word: &str) -> bool {
        let text = self.text();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let is = &text[..end] == word;
        if is {
            self.rest = &text[end..];
        }
        is
    }

    fn name(&mut self) -> Result<String> {
        let text = self.text();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(format!("expected a name at '{text}'").into());
        }
        self.rest = &text[end..];
        Ok(text[..end].to_owned())
    }

    fn number(&mut self) -> Option<f64> {
        let text = self.text();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number = text[..end].parse().ok()?;
        self.rest = &text[end..];
        Some(number)
    }

    /// Skips an expression, which is parsed later.
    fn skip(&mut self) -> Result<&'a str> {
        let (start, code, allocations) = (self.text(), self.body.code.len(), self.body.allocations.len());
        let block = self.body.block.clone();
        self.expression()?;
        self.body.code.truncate(code);
        self.body.allocations.truncate(allocations);
        self.body.block = block;
        Ok(&start[..start.len() - self.rest.len()])
    }

    fn parse(&mut self, text: &'a str) -> Result<String> {
        let rest = std::mem::replace(&mut self.rest, text);
        let value = self.expression();
        self.rest = rest;
        value
    }
}
