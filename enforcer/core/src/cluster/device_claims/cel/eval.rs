//! The value of an expression for a device.

use std::{cmp::Ordering, rc::Rc};

use numa_topology::quantity;

use super::{
    super::objects::{AttributeOfDevice, Device},
    EvalError, STEPS,
    parser::{Comparison, Function, Method, Node},
    value::{Entries, Semver, Value},
};

/// Does the expression hold?
pub(super) fn holds(root: &Node, driver: &str, device: &Device) -> Result<bool, EvalError> {
    let mut eval = Eval { driver, device, steps: STEPS, bound: Vec::new() };
    match eval.value(root)? {
        Value::Bool(holds) => Ok(holds),
        other => Err(EvalError(format!("a bool is expected, not a {}", other.kind()))),
    }
}

struct Eval<'a> {
    driver: &'a str,
    device: &'a Device,
    steps: u32,
    bound: Vec<(&'a str, Value)>,
}

fn error<T>(problem: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError(problem.into()))
}

fn no_such_key<T>(key: &str) -> Result<T, EvalError> {
    error(format!("no such key: `{}`", super::super::shown(key)))
}

impl<'a> Eval<'a> {
    fn step(&mut self) -> Result<(), EvalError> {
        self.steps =
            self.steps.checked_sub(1).ok_or_else(|| EvalError("the expression costs too much".into()))?;
        Ok(())
    }

    fn value(&mut self, node: &'a Node) -> Result<Value, EvalError> {
        self.step()?;
        match node {
            Node::Null => Ok(Value::Null),
            Node::Bool(value) => Ok(Value::Bool(*value)),
            Node::Int(value) => Ok(Value::Int(*value)),
            Node::Text(text) => Ok(Value::text(text)),
            Node::List(nodes) => {
                let values = nodes.iter().map(|node| self.value(node)).collect::<Result<Vec<_>, _>>()?;
                Ok(Value::List(values.into()))
            }
            Node::Device => Ok(Value::Device),
            Node::Bound(name) => match self.bound.iter().rev().find(|(bound, _)| bound == name) {
                Some((_, value)) => Ok(value.clone()),
                None => no_such_key(name),
            },
            Node::And(nodes) => self.decided(nodes, false),
            Node::Or(nodes) => self.decided(nodes, true),
            Node::Not(of) => Ok(Value::Bool(!self.flag(of)?)),
            Node::Compare(comparison, one, other) => {
                let (one, other) = (self.value(one)?, self.value(other)?);
                self.compare(*comparison, &one, &other).map(Value::Bool)
            }
            Node::Choice(condition, then, otherwise) => {
                if self.flag(condition)? {
                    self.value(then)
                } else {
                    self.value(otherwise)
                }
            }
            Node::Field { of, name, is_optional } => {
                let of = self.value(of)?;
                self.entry(&of, &Value::text(name), *is_optional)
            }
            Node::Entry { of, key, is_optional } => {
                let (of, key) = (self.value(of)?, self.value(key)?);
                self.entry(&of, &key, *is_optional)
            }
            Node::Has { of, name } => {
                let of = self.value(of)?;
                let found = self.entry(&of, &Value::text(name), true)?;
                Ok(Value::Bool(matches!(found, Value::Optional(Some(_)))))
            }
            Node::Call(function, argument) => {
                let argument = self.value(argument)?;
                call(*function, &argument)
            }
            Node::Method { of, method: Method::OrValue, arguments } => match self.value(of)? {
                Value::Optional(Some(value)) => Ok(value.as_ref().clone()),
                Value::Optional(None) => arguments.first().map_or(Ok(Value::Null), |node| self.value(node)),
                other => error(format!("no orValue of a {}", other.kind())),
            },
            Node::Method { of, method, arguments } => {
                let of = self.value(of)?;
                let argument = arguments.first().map(|node| self.value(node)).transpose()?;
                method_of(*method, &of, argument.as_ref())
            }
            Node::Bind { name, value, body } => {
                let value = self.value(value)?;
                self.bound.push((name, value));
                let body = self.value(body);
                self.bound.pop();
                body
            }
        }
    }

    fn flag(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        match self.value(node)? {
            Value::Bool(flag) => Ok(flag),
            other => error(format!("a bool is expected, not a {}", other.kind())),
        }
    }

    /// `||` if `decides` is true, `&&` if it is false: one such part decides, whatever errors others are.
    fn decided(&mut self, nodes: &'a [Node], decides: bool) -> Result<Value, EvalError> {
        let mut failed = None;
        for node in nodes {
            match self.flag(node) {
                Ok(flag) if flag == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(fault) => drop(failed.get_or_insert(fault)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn compare(&mut self, comparison: Comparison, one: &Value, other: &Value) -> Result<bool, EvalError> {
        let by_order = |is_fit: fn(Ordering) -> bool| match one.order(other) {
            Some(order) => Ok(is_fit(order)),
            None => error(format!("no order of a {} and a {}", one.kind(), other.kind())),
        };
        match comparison {
            Comparison::Equal => self.are_equal(one, other),
            Comparison::Unequal => self.are_equal(one, other).map(|equal| !equal),
            Comparison::Less => by_order(Ordering::is_lt),
            Comparison::LessOrEqual => by_order(Ordering::is_le),
            Comparison::Greater => by_order(Ordering::is_gt),
            Comparison::GreaterOrEqual => by_order(Ordering::is_ge),
            Comparison::In => match other {
                Value::List(values) => {
                    for value in values.iter() {
                        if self.are_equal(one, value)? {
                            return Ok(true);
                        }
                    }
                    Ok(false)
                }
                Value::Domains(entries) => Ok(self.has_domain(*entries, one)),
                Value::Domain(..) => Ok(matches!(self.entry(other, one, true)?, Value::Optional(Some(_)))),
                _ => error(format!("no `in` of a {}", other.kind())),
            },
        }
    }

    /// Values of different types are unequal.
    fn are_equal(&mut self, one: &Value, other: &Value) -> Result<bool, EvalError> {
        self.step()?;
        Ok(match (one, other) {
            (Value::Null, Value::Null) | (Value::Optional(None), Value::Optional(None)) => true,
            (Value::Quantity(one), Value::Quantity(other)) => one == other,
            (Value::Version(one), Value::Version(other)) => one == other,
            (Value::Optional(Some(one)), Value::Optional(Some(other))) => self.are_equal(one, other)?,
            (Value::List(one), Value::List(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other.iter()) {
                    if !self.are_equal(one, other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (
                Value::Device | Value::Domains(_) | Value::Domain(..),
                Value::Device | Value::Domains(_) | Value::Domain(..),
            ) => return error("maps are not compared"),
            _ => one.order(other) == Some(Ordering::Equal),
        })
    }

    /// An entry of a map; an optional one if it is asked for so, or of an optional map.
    fn entry(&mut self, of: &Value, key: &Value, is_optional: bool) -> Result<Value, EvalError> {
        self.step()?;
        if let Value::Optional(inner) = of {
            let Some(inner) = inner else { return Ok(Value::Optional(None)) };
            let inner = Rc::clone(inner);
            return match self.entry(&inner, key, true)? {
                found @ Value::Optional(_) => Ok(found),
                found => Ok(Value::Optional(Some(Rc::new(found)))),
            };
        }
        let found = match (of, key) {
            (Value::List(values), Value::Int(at)) => {
                usize::try_from(*at).ok().and_then(|at| values.get(at)).cloned()
            }
            (_, Value::Text(name)) => self.named_entry(of, name)?,
            _ => return error(format!("no entry of a {} by a {}", of.kind(), key.kind())),
        };
        match (found, is_optional, key) {
            (found, true, _) => Ok(Value::Optional(found.map(Rc::new))),
            (Some(found), false, _) => Ok(found),
            (None, false, Value::Text(name)) => no_such_key(name),
            (None, false, _) => error("an index outside of its list"),
        }
    }

    fn named_entry(&self, of: &Value, name: &Rc<str>) -> Result<Option<Value>, EvalError> {
        match of {
            Value::Device => Ok(match &**name {
                "driver" => Some(Value::text(self.driver)),
                "attributes" => Some(Value::Domains(Entries::Attributes)),
                "capacity" => Some(Value::Domains(Entries::Capacity)),
                "allowMultipleAllocations" => Some(Value::Bool(self.device.allows_multiple)),
                _ => None,
            }),
            // A domain without entries is an empty map.
            Value::Domains(entries) => Ok(Some(Value::Domain(*entries, Rc::clone(name)))),
            Value::Domain(entries, domain) => Ok(self.of_domain(*entries, domain, name)),
            _ => error(format!("no entry of a {}", of.kind())),
        }
    }

    /// Entry of a domain; one of the driver's own may be written without it.
    fn of_domain(&self, entries: Entries, domain: &str, name: &str) -> Option<Value> {
        let full = format!("{domain}/{name}");
        let bare = (domain == self.driver).then_some(name);
        match entries {
            Entries::Attributes => {
                let own = bare.and_then(|bare| self.device.attributes.get(bare));
                self.device.attributes.get(&full).or(own).map(attribute)
            }
            Entries::Capacity => {
                let own = bare.and_then(|bare| self.device.capacity.get(bare));
                let capacity = self.device.capacity.get(&full).or(own);
                capacity.map(|capacity| Value::Quantity(capacity.value))
            }
        }
    }

    fn has_domain(&self, entries: Entries, domain: &Value) -> bool {
        let Value::Text(domain) = domain else { return false };
        let is_of = |key: &String| key.split_once('/').map_or(self.driver, |(of, _)| of) == &**domain;
        match entries {
            Entries::Attributes => self.device.attributes.keys().any(is_of),
            Entries::Capacity => self.device.capacity.keys().any(is_of),
        }
    }
}

fn attribute(value: &AttributeOfDevice) -> Value {
    match value {
        AttributeOfDevice::Int(number) => Value::Int(*number),
        AttributeOfDevice::Bool(flag) => Value::Bool(*flag),
        AttributeOfDevice::Text(text) => Value::text(text),
        AttributeOfDevice::Version(text) => {
            Semver::parse(text).map_or_else(|| Value::text(text), |version| Value::Version(Rc::new(version)))
        }
        AttributeOfDevice::List(values) => Value::List(values.iter().map(attribute).collect()),
    }
}

fn call(function: Function, argument: &Value) -> Result<Value, EvalError> {
    match (function, argument) {
        (Function::Quantity, Value::Text(text)) => match quantity::nano(text) {
            Some(amount) => Ok(Value::Quantity(amount)),
            None => error(format!("`{}` is no quantity", super::super::shown(text))),
        },
        (Function::Semver, Value::Text(text)) => match Semver::parse(text) {
            Some(version) => Ok(Value::Version(Rc::new(version))),
            None => error(format!("`{}` is no semantic version", super::super::shown(text))),
        },
        (Function::Size, of) => method_of(Method::Size, of, None),
        (Function::Quantity | Function::Semver, of) => {
            error(format!("a string is expected, not a {}", of.kind()))
        }
    }
}

fn method_of(method: Method, of: &Value, argument: Option<&Value>) -> Result<Value, EvalError> {
    let number = |number: usize| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let wide = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let value = match (method, of, argument) {
        (Method::CompareTo | Method::IsGreaterThan | Method::IsLessThan, of, Some(other)) => {
            let order = match (of, other) {
                (Value::Quantity(one), Value::Quantity(other)) => one.cmp(other),
                (Value::Version(one), Value::Version(other)) => one.cmp(other),
                _ => return error(format!("no order of a {} and a {}", of.kind(), other.kind())),
            };
            match method {
                Method::IsGreaterThan => Value::Bool(order.is_gt()),
                Method::IsLessThan => Value::Bool(order.is_lt()),
                _ => Value::Int(order as i64),
            }
        }
        (Method::StartsWith, Value::Text(text), Some(Value::Text(part))) => {
            Value::Bool(text.starts_with(&**part))
        }
        (Method::EndsWith, Value::Text(text), Some(Value::Text(part))) => {
            Value::Bool(text.ends_with(&**part))
        }
        (Method::Contains, Value::Text(text), Some(Value::Text(part))) => Value::Bool(text.contains(&**part)),
        (Method::LowerAscii, Value::Text(text), None) => Value::text(&text.to_ascii_lowercase()),
        (Method::UpperAscii, Value::Text(text), None) => Value::text(&text.to_ascii_uppercase()),
        (Method::Size, Value::Text(text), None) => number(text.chars().count()),
        (Method::Size, Value::List(values), None) => number(values.len()),
        (Method::HasValue, Value::Optional(value), None) => Value::Bool(value.is_some()),
        (Method::Value, Value::Optional(Some(value)), None) => value.as_ref().clone(),
        (Method::Value, Value::Optional(None), None) => return error("the value of an empty optional"),
        (Method::Major, Value::Version(version), None) => wide(version.numbers[0]),
        (Method::Minor, Value::Version(version), None) => wide(version.numbers[1]),
        (Method::Patch, Value::Version(version), None) => wide(version.numbers[2]),
        _ => return error(format!("no such function of a {}", of.kind())),
    };
    Ok(value)
}
