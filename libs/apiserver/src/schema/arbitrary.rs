//! Random objects of a schema, as upstream would print them.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

use super::{Field, GroupVersionKind, Message, Schema, Type};

/// An object of any kind.
pub(crate) fn object() -> impl Strategy<Value = Map<String, Value>> {
    let kinds: Vec<GroupVersionKind> = Schema::builtin().kinds().map(|(kind, _)| kind.clone()).collect();
    select(kinds).prop_flat_map(|kind| object_of(&kind))
}

/// An object of a kind.
pub(crate) fn object_of(kind: &GroupVersionKind) -> impl Strategy<Value = Map<String, Value>> + use<> {
    let kind = kind.clone();
    Just(()).prop_perturb(move |(), rng| {
        let schema = Schema::builtin();
        let message = schema.of_kind(&kind).expect("a kind of the schema");
        let mut make = Make { schema, rng, depth: 0 };
        let mut object = make.message(message);
        object.insert("apiVersion".to_owned(), kind.api_version().into());
        object.insert("kind".to_owned(), kind.kind.clone().into());
        object
    })
}

struct Make {
    schema: &'static Schema,
    rng: TestRng,
    depth: u32,
}

impl Make {
    /// True less often the deeper it is.
    fn chance(&mut self) -> bool {
        let one_in = 2 + self.depth / 2;
        self.below(one_in) == 0
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32() % limit
    }

    fn message(&mut self, message: &Message) -> Map<String, Value> {
        self.depth += 1;
        let mut object = Map::new();
        for field in self.schema.json_fields(message) {
            if let Some(value) = self.field(field) {
                object.insert(field.name.clone(), value);
            }
        }
        self.depth -= 1;
        object
    }

    fn field(&mut self, field: &Field) -> Option<Value> {
        let given = self.chance();
        match &field.ty {
            Type::Message(id) if field.always && !field.optional => {
                let message = self.schema.message(*id);
                Some(Value::Object(self.message(message)))
            }
            _ if !given && field.always => Some(if field.optional { Value::Null } else { zero(&field.ty) }),
            _ if !given => None,
            ty => Some(self.value(ty)),
        }
    }

    /// Never the zero value, which prints as if it were absent.
    fn value(&mut self, ty: &Type) -> Value {
        match ty {
            Type::String => self.text().into(),
            Type::Bool => true.into(),
            Type::Int32 => (1 + (self.below(u32::MAX) >> 1)).into(),
            Type::Int64 => (-1 - i64::from(self.below(u32::MAX)) * 1_000_003).into(),
            Type::Bytes => "AP8=".into(),
            Type::Quantity => format!("{}m", 1 + self.below(999)).into(),
            Type::Time => format!("20{:02}-02-03T04:05:06Z", 10 + self.below(89)).into(),
            Type::MicroTime => format!("2026-02-03T04:05:06.{:06}Z", self.below(1_000_000)).into(),
            Type::IntOrString if self.chance() => self.text().into(),
            Type::IntOrString => (1 + self.below(99)).into(),
            Type::Raw | Type::FieldsV1 | Type::Any => json!({"k": self.text(), "n": [1, null, -2.5]}),
            Type::Message(id) => {
                let message = self.schema.message(*id);
                Value::Object(self.message(message))
            }
            Type::List(element) | Type::Items(element) => {
                let length = 1 + self.below(2);
                Value::Array((0..length).map(|_| self.value(element)).collect())
            }
            Type::Map(element) => {
                let length = 1 + self.below(2);
                Value::Object((0..length).map(|_| (self.text(), self.value(element))).collect())
            }
        }
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 8] = ["a", "Zz", "ä/ö", "with space", "true", "12", "-", "🦀"];
        let position = self.below(8);
        TEXTS[position as usize].to_owned()
    }
}

fn zero(ty: &Type) -> Value {
    match ty {
        Type::String => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        _ => Value::Null,
    }
}
