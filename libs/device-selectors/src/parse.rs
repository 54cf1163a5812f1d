//! Tokens to tree, by precedence climbing. Nesting is counted, so hostile input ends in an error, never in a
//! deep stack; macros are expanded while their call is read.

use std::sync::Arc;

use crate::ast::{Element, Entry, Expr, ExprKind, Literal, op};
use crate::depth::guarded;
use crate::error::{CompileErrorKind, Refusal};
use crate::lex::{Token, tokens};
use crate::macros;

/// Levels of parentheses, calls, literals and left-deep operator chains (cel-go's parser limit).
const NESTING_MAX: u16 = 250;

/// Nodes of one expanded tree. `optMap` copies its receiver, so a chain of them doubles at every link;
/// no expression of 10,240 bytes that anyone would write comes near.
const NODES_MAX: u32 = 50_000;

/// Words that may name fields but neither variables nor functions.
const RESERVED: [&str; 16] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// Parses `source` and expands its macros.
pub(crate) fn parse(source: &str) -> Result<Expr, Refusal> {
    let mut parser = Parser {
        tokens: tokens(source)?,
        at: 0,
        depth: 0,
        nodes: Nodes { next_id: 0 },
    };
    let expr = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        other => Err(parser.syntax(format!("extraneous input {other}"))),
    }
}

/// Makes nodes: hands out ids and enforces the limits on nesting and size.
pub(crate) struct Nodes {
    next_id: u32,
}

impl Nodes {
    /// A node the user wrote; its height is one more than that of its children.
    pub(crate) fn node(&mut self, pos: u32, kind: ExprKind) -> Result<Expr, Refusal> {
        let mut expr = Expr {
            id: self.id(pos)?,
            pos,
            height: 0,
            kind,
        };
        let mut tallest = 0;
        expr.for_children(&mut |child| tallest = tallest.max(child.height));
        expr.height = tallest + 1;
        self.within_limit(expr)
    }

    /// Refuses a node that stands on too many levels.
    pub(crate) fn within_limit(&self, expr: Expr) -> Result<Expr, Refusal> {
        if expr.height > NESTING_MAX {
            Err(too_deep(expr.pos))
        } else {
            Ok(expr)
        }
    }

    /// A node a macro made: as tall as the tallest child, so that a macro counts once.
    pub(crate) fn expanded(&mut self, pos: u32, kind: ExprKind) -> Result<Expr, Refusal> {
        let mut expr = Expr {
            id: self.id(pos)?,
            pos,
            height: 0,
            kind,
        };
        let mut tallest = 1;
        expr.for_children(&mut |child| tallest = tallest.max(child.height));
        expr.height = tallest;
        Ok(expr)
    }

    fn id(&mut self, pos: u32) -> Result<u32, Refusal> {
        if self.next_id >= NODES_MAX {
            let message = format!("expression expands to more than {NODES_MAX} nodes");
            return Err(Refusal::new(CompileErrorKind::TooDeep, pos, message));
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }
}

fn too_deep(pos: u32) -> Refusal {
    let message = format!("expression recursion limit exceeded: {NESTING_MAX}");
    Refusal::new(CompileErrorKind::TooDeep, pos, message)
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    depth: u16,
    nodes: Nodes,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn pos(&self) -> u32 {
        self.tokens[self.at].1
    }

    /// Takes the current token; at the end it stays there.
    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), Token::Punct(p) if *p == punct);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, punct: &str) -> Result<(), Refusal> {
        if self.eat(punct) {
            return Ok(());
        }
        let message = format!("expecting '{punct}', found {}", self.peek());
        Err(self.syntax(message))
    }

    fn syntax(&self, message: String) -> Refusal {
        Refusal::new(CompileErrorKind::Syntax, self.pos(), format!("Syntax error: {message}"))
    }

    fn call(&mut self, pos: u32, function: &str, args: Vec<Expr>) -> Result<Expr, Refusal> {
        self.nodes.node(
            pos,
            ExprKind::Call {
                function: function.into(),
                target: None,
                args,
            },
        )
    }

    fn literal(&mut self, pos: u32, literal: Literal) -> Result<Expr, Refusal> {
        self.nodes.node(pos, ExprKind::Literal(literal))
    }

    /// `or ('?' or ':' expr)?`. Every nested expression passes here, so this is where depth is counted.
    fn expr(&mut self) -> Result<Expr, Refusal> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(too_deep(self.pos()));
        }
        let expr = guarded(|| self.conditional())?;
        self.depth -= 1;
        Ok(expr)
    }

    fn conditional(&mut self) -> Result<Expr, Refusal> {
        let expr = self.logic(op::OR)?;
        let pos = self.pos();
        if !self.eat("?") {
            return Ok(expr);
        }
        let yes = self.logic(op::OR)?;
        self.expect(":")?;
        let no = self.expr()?;
        self.call(pos, op::CONDITIONAL, vec![expr, yes, no])
    }

    /// A chain of `||` or `&&`: one node however long, so chains do not count as nesting.
    fn logic(&mut self, function: &'static str) -> Result<Expr, Refusal> {
        let punct = if function == op::OR { "||" } else { "&&" };
        let first = self.logic_operand(function)?;
        let pos = self.pos();
        let mut args = vec![first];
        while self.eat(punct) {
            args.push(self.logic_operand(function)?);
        }
        match args.len() {
            1 => Ok(args.swap_remove(0)),
            _ => self.call(pos, function, args),
        }
    }

    fn logic_operand(&mut self, function: &'static str) -> Result<Expr, Refusal> {
        if function == op::OR {
            self.logic(op::AND)
        } else {
            self.binary(0)
        }
    }

    /// Left-associative operators of at least `level`: 0 relations, 1 sums, 2 products.
    fn binary(&mut self, level: u8) -> Result<Expr, Refusal> {
        let mut left = self.unary()?;
        while let Some((function, found)) = self.binary_operator().filter(|(_, found)| *found >= level) {
            let pos = self.pos();
            self.at += 1;
            let right = self.binary(found + 1)?;
            left = self.call(pos, function, vec![left, right])?;
        }
        Ok(left)
    }

    fn binary_operator(&self) -> Option<(&'static str, u8)> {
        Some(match self.peek() {
            Token::In => (op::IN, 0),
            Token::Punct("==") => (op::EQ, 0),
            Token::Punct("!=") => (op::NE, 0),
            Token::Punct("<") => (op::LT, 0),
            Token::Punct("<=") => (op::LE, 0),
            Token::Punct(">") => (op::GT, 0),
            Token::Punct(">=") => (op::GE, 0),
            Token::Punct("+") => (op::ADD, 1),
            Token::Punct("-") => (op::SUB, 1),
            Token::Punct("*") => (op::MUL, 2),
            Token::Punct("/") => (op::DIV, 2),
            Token::Punct("%") => (op::REM, 2),
            _ => return None,
        })
    }

    /// Any number of `!` or of `-`. Pairs cancel; a single `-` before a number belongs to the number.
    fn unary(&mut self) -> Result<Expr, Refusal> {
        let pos = self.pos();
        for (punct, function) in [("!", op::NOT), ("-", op::NEGATE)] {
            let mut count = 0;
            while self.eat(punct) {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            if punct == "-" && count == 1 && matches!(self.peek(), Token::Int { .. } | Token::Double(_)) {
                return self.member(true);
            }
            let operand = self.member(false)?;
            return if count % 2 == 0 {
                Ok(operand)
            } else {
                self.call(pos, function, vec![operand])
            };
        }
        self.member(false)
    }

    /// A primary followed by selections, indexes and member calls.
    fn member(&mut self, negative: bool) -> Result<Expr, Refusal> {
        let mut expr = self.primary(negative)?;
        loop {
            let pos = self.pos();
            if self.eat(".") {
                expr = self.after_dot(pos, expr)?;
            } else if self.eat("[") {
                let function = if self.eat("?") { op::OPT_INDEX } else { op::INDEX };
                let index = self.expr()?;
                self.expect("]")?;
                expr = self.call(pos, function, vec![expr, index])?;
            } else if matches!(self.peek(), Token::Punct("{")) && expr.qualified_name().is_some() {
                let message = "construction of messages is not supported";
                return Err(Refusal::new(CompileErrorKind::Undeclared, pos, message));
            } else {
                return Ok(expr);
            }
        }
    }

    fn after_dot(&mut self, pos: u32, operand: Expr) -> Result<Expr, Refusal> {
        let optional = self.eat("?");
        let token = self.advance();
        let field = match &token {
            Token::Ident(name) | Token::QuotedIdent(name) => Arc::clone(name),
            _ => {
                self.at -= usize::from(token != Token::End);
                return Err(self.syntax("expecting a field name".to_owned()));
            }
        };
        if optional {
            let field = self.literal(pos, Literal::String(field))?;
            return self.call(pos, op::OPT_SELECT, vec![operand, field]);
        }
        let call_pos = self.pos();
        if matches!(token, Token::Ident(_)) && self.eat("(") {
            let args = self.args(")")?;
            return macros::member_call(&mut self.nodes, call_pos, operand, &field, args);
        }
        self.nodes.node(
            pos,
            ExprKind::Select {
                operand: Box::new(operand),
                field,
                test: false,
            },
        )
    }

    fn args(&mut self, close: &str) -> Result<Vec<Expr>, Refusal> {
        let mut args = Vec::new();
        if self.eat(close) {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.eat(close) {
                return Ok(args);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self, negative: bool) -> Result<Expr, Refusal> {
        let pos = self.pos();
        let literal = match self.advance() {
            Token::Null => Literal::Null,
            Token::Bool(value) => Literal::Bool(value),
            Token::Int { digits, hex } => Literal::Int(self.int(pos, &digits, hex, negative)?),
            Token::Uint(value) => Literal::Uint(value),
            Token::Double(value) => Literal::Double(if negative { -value } else { value }),
            Token::String(text) => Literal::String(text),
            Token::Bytes(bytes) => Literal::Bytes(bytes),
            Token::Ident(name) => return self.ident_or_call(pos, name),
            Token::Punct(".") => match self.advance() {
                Token::Ident(name) => return self.ident_or_call(pos, name),
                _ => {
                    return Err(Refusal::new(
                        CompileErrorKind::Syntax,
                        pos,
                        "Syntax error: expecting a name after '.'",
                    ));
                }
            },
            Token::Punct("(") => {
                let inner = self.expr()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Punct("[") => return self.list(pos),
            Token::Punct("{") => return self.map(pos),
            other => {
                let message = format!("Syntax error: mismatched input {other}");
                return Err(Refusal::new(CompileErrorKind::Syntax, pos, message));
            }
        };
        self.literal(pos, literal)
    }

    fn int(&self, pos: u32, digits: &str, hex: bool, negative: bool) -> Result<i64, Refusal> {
        let sign = if negative { "-" } else { "" };
        i64::from_str_radix(&format!("{sign}{digits}"), if hex { 16 } else { 10 })
            .map_err(|_| Refusal::new(CompileErrorKind::Syntax, pos, "Syntax error: invalid int literal"))
    }

    fn ident_or_call(&mut self, pos: u32, name: Arc<str>) -> Result<Expr, Refusal> {
        if RESERVED.contains(&&*name) || &*name == "while" {
            let message = format!("Syntax error: reserved identifier: {name}");
            return Err(Refusal::new(CompileErrorKind::Syntax, pos, message));
        }
        let call_pos = self.pos();
        if self.eat("(") {
            let args = self.args(")")?;
            return macros::global_call(&mut self.nodes, call_pos, &name, args);
        }
        self.nodes.node(pos, ExprKind::Ident(name))
    }

    /// The rest of a list after `[`. A lone comma is allowed, as upstream's grammar has it.
    fn list(&mut self, pos: u32) -> Result<Expr, Refusal> {
        let mut elements = Vec::new();
        if !self.eat(",") {
            while !matches!(self.peek(), Token::Punct("]")) {
                let optional = self.eat("?");
                elements.push(Element {
                    value: self.expr()?,
                    optional,
                });
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect("]")?;
        self.nodes.node(pos, ExprKind::List { elements })
    }

    fn map(&mut self, pos: u32) -> Result<Expr, Refusal> {
        let mut entries = Vec::new();
        if !self.eat(",") {
            while !matches!(self.peek(), Token::Punct("}")) {
                let optional = self.eat("?");
                let key = self.expr()?;
                self.expect(":")?;
                entries.push(Entry {
                    key,
                    value: self.expr()?,
                    optional,
                });
                if !self.eat(",") {
                    break;
                }
            }
        }
        self.expect("}")?;
        self.nodes.node(pos, ExprKind::Map { entries })
    }
}
