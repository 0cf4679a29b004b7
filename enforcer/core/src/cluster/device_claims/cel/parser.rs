//! An expression as a tree.
//!
//! Invariant: every function, method and name in the tree is one that the evaluator knows, and the tree is no
//! deeper than the bounds of [`super`] allow.

use super::{CHAIN, NESTING, lexer::Token};

/// A part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Bool(bool),
    Int(i64),
    Text(String),
    Null,
    List(Vec<Node>),
    /// `device`.
    Device,
    /// A name that `cel.bind` gives a value.
    Bound(String),
    /// All hold.
    And(Vec<Node>),
    /// One holds.
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    /// Condition, value if it holds, value if not.
    Choice(Box<Node>, Box<Node>, Box<Node>),
    /// A field; `is_optional` for `.?`.
    Field {
        of: Box<Node>,
        name: String,
        is_optional: bool,
    },
    /// An entry; `is_optional` for `[?`.
    Entry {
        of: Box<Node>,
        key: Box<Node>,
        is_optional: bool,
    },
    /// `has(a.b)`.
    Has {
        of: Box<Node>,
        name: String,
    },
    Call(Function, Box<Node>),
    Method {
        of: Box<Node>,
        method: Method,
        arguments: Vec<Node>,
    },
    Bind {
        name: String,
        value: Box<Node>,
        body: Box<Node>,
    },
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Quantity,
    Semver,
    Size,
}

/// A method of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    CompareTo,
    IsGreaterThan,
    IsLessThan,
    StartsWith,
    EndsWith,
    Contains,
    LowerAscii,
    UpperAscii,
    Size,
    OrValue,
    HasValue,
    Value,
    Major,
    Minor,
    Patch,
}

/// Name, method, number of arguments.
const METHODS: [(&str, Method, usize); 15] = [
    ("compareTo", Method::CompareTo, 1),
    ("isGreaterThan", Method::IsGreaterThan, 1),
    ("isLessThan", Method::IsLessThan, 1),
    ("startsWith", Method::StartsWith, 1),
    ("endsWith", Method::EndsWith, 1),
    ("contains", Method::Contains, 1),
    ("lowerAscii", Method::LowerAscii, 0),
    ("upperAscii", Method::UpperAscii, 0),
    ("size", Method::Size, 0),
    ("orValue", Method::OrValue, 1),
    ("hasValue", Method::HasValue, 0),
    ("value", Method::Value, 0),
    ("major", Method::Major, 0),
    ("minor", Method::Minor, 0),
    ("patch", Method::Patch, 0),
];

/// The tree of an expression.
pub(super) fn parse(tokens: &[Token]) -> Result<Node, String> {
    let mut parser = Parser { tokens, at: 0, depth: 0, bound: Vec::new() };
    let node = parser.expression()?;
    match parser.peek() {
        None => Ok(node),
        Some(token) => Err(format!("{} after the end", told(token))),
    }
}

fn told(token: &Token) -> String {
    match token {
        Token::Name(name) => format!("`{}`", super::super::shown(name)),
        Token::Text(_) => "a text".into(),
        Token::Int(number) => format!("`{number}`"),
        Token::Sign(sign) => format!("`{sign}`"),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    /// Names that have a value here.
    bound: Vec<String>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        let found = self.peek().map_or_else(|| "its end".into(), told);
        format!("{expected} is expected, not {found}")
    }

    fn name(&mut self) -> Result<String, String> {
        let Some(Token::Name(name)) = self.peek().cloned() else { return Err(self.unexpected("a name")) };
        self.at += 1;
        Ok(name)
    }

    /// `or ? expression : expression`.
    fn expression(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > NESTING {
            return Err(format!("nested more than {NESTING} deep"));
        }
        let node = self.any()?;
        let node = if self.take("?") {
            let then = self.expression()?;
            self.expect(":")?;
            Node::Choice(Box::new(node), Box::new(then), Box::new(self.expression()?))
        } else {
            node
        };
        self.depth -= 1;
        Ok(node)
    }

    fn any(&mut self) -> Result<Node, String> {
        let first = self.all()?;
        let mut nodes = vec![first];
        while self.take("||") {
            nodes.push(self.all()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Or(nodes) })
    }

    fn all(&mut self) -> Result<Node, String> {
        let first = self.comparison()?;
        let mut nodes = vec![first];
        while self.take("&&") {
            nodes.push(self.comparison()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::And(nodes) })
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let mut node = self.unary()?;
        for _ in 0..CHAIN {
            let comparison = match self.peek() {
                Some(Token::Sign("==")) => Comparison::Equal,
                Some(Token::Sign("!=")) => Comparison::Unequal,
                Some(Token::Sign("<")) => Comparison::Less,
                Some(Token::Sign("<=")) => Comparison::LessOrEqual,
                Some(Token::Sign(">")) => Comparison::Greater,
                Some(Token::Sign(">=")) => Comparison::GreaterOrEqual,
                Some(Token::Name(name)) if name == "in" => Comparison::In,
                _ => return Ok(node),
            };
            self.at += 1;
            node = Node::Compare(comparison, Box::new(node), Box::new(self.unary()?));
        }
        Err(format!("more than {CHAIN} comparisons in a row"))
    }

    fn unary(&mut self) -> Result<Node, String> {
        if self.take("-") {
            let Some(Token::Int(number)) = self.peek().cloned() else {
                return Err(self.unexpected("a number"));
            };
            self.at += 1;
            let negative = 0_i64.checked_sub_unsigned(number).ok_or("a number that is too small")?;
            return Ok(Node::Int(negative));
        }
        let mut is_negated = false;
        let mut has_sign = false;
        while self.take("!") {
            (is_negated, has_sign) = (!is_negated, true);
        }
        let node = self.member()?;
        Ok(match (has_sign, is_negated) {
            (false, _) => node,
            (true, true) => Node::Not(Box::new(node)),
            // Still no value that is not true or false.
            (true, false) => Node::Not(Box::new(Node::Not(Box::new(node)))),
        })
    }

    fn member(&mut self) -> Result<Node, String> {
        let mut node = self.primary()?;
        for _ in 0..CHAIN {
            if self.take(".?") {
                let name = self.name()?;
                node = Node::Field { of: Box::new(node), name, is_optional: true };
            } else if self.take(".") {
                let name = self.name()?;
                node = if self.take("(") {
                    self.method(node, &name)?
                } else {
                    Node::Field { of: Box::new(node), name, is_optional: false }
                };
            } else if self.take("[?") {
                node = self.entry(node, true)?;
            } else if self.take("[") {
                node = self.entry(node, false)?;
            } else {
                return Ok(node);
            }
        }
        Err(format!("more than {CHAIN} fields in a row"))
    }

    fn entry(&mut self, of: Node, is_optional: bool) -> Result<Node, String> {
        let key = Box::new(self.expression()?);
        self.expect("]")?;
        Ok(Node::Entry { of: Box::new(of), key, is_optional })
    }

    fn method(&mut self, of: Node, name: &str) -> Result<Node, String> {
        let arguments = self.arguments(")")?;
        let known = METHODS.iter().find(|(known, ..)| *known == name);
        let (_, method, count) =
            known.ok_or_else(|| format!("the function `{}`", super::super::shown(name)))?;
        if arguments.len() != *count {
            return Err(format!("`{name}` with {} arguments", arguments.len()));
        }
        Ok(Node::Method { of: Box::new(of), method: *method, arguments })
    }

    /// Expressions up to a closing bracket.
    fn arguments(&mut self, end: &str) -> Result<Vec<Node>, String> {
        let mut arguments = Vec::new();
        while !self.take(end) {
            if !arguments.is_empty() {
                self.expect(",")?;
                if self.take(end) {
                    break;
                }
            }
            arguments.push(self.expression()?);
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Node, String> {
        if self.take("(") {
            let node = self.expression()?;
            self.expect(")")?;
            return Ok(node);
        }
        if self.take("[") {
            return Ok(Node::List(self.arguments("]")?));
        }
        let token = self.peek().cloned().ok_or_else(|| self.unexpected("a value"))?;
        if matches!(token, Token::Sign(_)) {
            return Err(self.unexpected("a value"));
        }
        self.at += 1;
        match token {
            Token::Text(text) => Ok(Node::Text(text)),
            Token::Int(number) => {
                i64::try_from(number).map(Node::Int).map_err(|_large| "a number that is too large".to_owned())
            }
            Token::Name(name) => self.named(&name),
            Token::Sign(sign) => Err(format!("`{sign}`")),
        }
    }

    fn named(&mut self, name: &str) -> Result<Node, String> {
        if name == "cel" && self.take(".") {
            return self.bind();
        }
        if self.take("(") {
            let mut arguments = self.arguments(")")?;
            let argument = arguments.pop().filter(|_| arguments.is_empty());
            let argument = argument
                .ok_or_else(|| format!("`{}` with other than one argument", super::super::shown(name)))?;
            let function = match name {
                "has" => {
                    let Node::Field { of, name, is_optional: false } = argument else {
                        return Err("has() of something else than a field".into());
                    };
                    return Ok(Node::Has { of, name });
                }
                "quantity" => Function::Quantity,
                "semver" => Function::Semver,
                "size" => Function::Size,
                _ => return Err(format!("the function `{}`", super::super::shown(name))),
            };
            return Ok(Node::Call(function, Box::new(argument)));
        }
        match name {
            "true" => Ok(Node::Bool(true)),
            "false" => Ok(Node::Bool(false)),
            "null" => Ok(Node::Null),
            _ if self.bound.iter().any(|bound| bound == name) => Ok(Node::Bound(name.to_owned())),
            "device" => Ok(Node::Device),
            _ => Err(format!("the name `{}`", super::super::shown(name))),
        }
    }

    /// `cel.bind(name, value, body)`, behind the point.
    fn bind(&mut self) -> Result<Node, String> {
        let function = self.name()?;
        if function != "bind" {
            return Err(format!("the function `cel.{}`", super::super::shown(&function)));
        }
        self.expect("(")?;
        let name = self.name()?;
        self.expect(",")?;
        let value = Box::new(self.expression()?);
        self.expect(",")?;
        self.bound.push(name.clone());
        let body = self.expression();
        self.bound.pop();
        let body = Box::new(body?);
        self.expect(")")?;
        Ok(Node::Bind { name, value, body })
    }
}
