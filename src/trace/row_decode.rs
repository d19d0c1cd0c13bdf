//! A row of a record batch as a struct, by serde, without a detour over JSON text.
//!
//! Null cells are left out of the row, so an `Option` becomes `None` and any other field its default.

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray,
};
use arrow_schema::{Fields, SchemaRef};
use serde::de::value::{
    Error as ValueError, MapAccessDeserializer, SeqDeserializer, StrDeserializer,
};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    Visitor,
};

/// A column that cells are read from.
#[derive(Debug)]
enum Column {
    Text(StringArray),
    Bool(BooleanArray),
    F64(PrimitiveArray<Float64Type>),
    I64(PrimitiveArray<Int64Type>),
    U16(PrimitiveArray<UInt16Type>),
    U32(PrimitiveArray<UInt32Type>),
    U64(PrimitiveArray<UInt64Type>),
    List(ListArray, Box<Column>),
    Struct(StructArray, Vec<Column>),
}

impl Column {
    fn new(array: &ArrayRef) -> Option<Self> {
        fn cast<T: Clone + 'static>(array: &ArrayRef) -> Option<T> {
            array.as_any().downcast_ref::<T>().cloned()
        }
        cast(array)
            .map(Self::Text)
            .or_else(|| cast(array).map(Self::Bool))
            .or_else(|| cast(array).map(Self::F64))
            .or_else(|| cast(array).map(Self::I64))
            .or_else(|| cast(array).map(Self::U16))
            .or_else(|| cast(array).map(Self::U32))
            .or_else(|| cast(array).map(Self::U64))
            .or_else(|| {
                let list: ListArray = cast(array)?;
                let items = Self::new(list.values())?;
                Some(Self::List(list, Box::new(items)))
            })
            .or_else(|| {
                let array: StructArray = cast(array)?;
                let columns = array.columns().iter().map(Self::new).collect::<Option<_>>()?;
                Some(Self::Struct(array, columns))
            })
    }

    fn is_null(&self, index: usize) -> bool {
        match self {
            Self::Text(array) => array.is_null(index),
            Self::Bool(array) => array.is_null(index),
            Self::F64(array) => array.is_null(index),
            Self::I64(array) => array.is_null(index),
            Self::U16(array) => array.is_null(index),
            Self::U32(array) => array.is_null(index),
            Self::U64(array) => array.is_null(index),
            Self::List(array, _) => array.is_null(index),
            Self::Struct(array, _) => array.is_null(index),
        }
    }
}

/// The columns of one batch, ready to be read row by row.
#[derive(Debug)]
pub(super) struct RowDecoder {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

impl RowDecoder {
    /// Takes a batch; fails on a column of a type that no table has.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, String> {
        let schema = batch.schema();
        let columns = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(array, field)| {
                Column::new(array)
                    .ok_or_else(|| format!("column {}: type {}", field.name(), field.data_type()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { schema: Arc::clone(&schema), columns, rows: batch.num_rows() })
    }

    /// Rows in the batch.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// One row.
    pub(super) fn row<T: DeserializeOwned>(&self, index: usize) -> Result<T, String> {
        let (fields, columns) = (self.schema.fields(), self.columns.as_slice());
        let cells = Cells { fields, columns, row: index, column: 0 };
        T::deserialize(MapAccessDeserializer::new(cells)).map_err(|error| error.to_string())
    }
}

/// The cells of one row, or of one struct in a cell.
struct Cells<'a> {
    fields: &'a Fields,
    columns: &'a [Column],
    row: usize,
    column: usize,
}

impl<'de> MapAccess<'de> for Cells<'_> {
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ValueError> {
        let columns = self.columns;
        while self.column < columns.len() && columns[self.column].is_null(self.row) {
            self.column += 1;
        }
        if self.column == columns.len() {
            return Ok(None);
        }
        let name: StrDeserializer<'_, ValueError> =
            self.fields[self.column].name().as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, ValueError> {
        let column = &self.columns[self.column];
        self.column += 1;
        seed.deserialize(Cell { column, index: self.row })
    }
}

#[derive(Clone, Copy)]
struct Cell<'a> {
    column: &'a Column,
    index: usize,
}

impl IntoDeserializer<'_, ValueError> for Cell<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Cell<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.column.is_null(self.index) {
            return visitor.visit_none();
        }
        match self.column {
            Column::Text(array) => visitor.visit_str(array.value(self.index)),
            Column::Bool(array) => visitor.visit_bool(array.value(self.index)),
            Column::F64(array) => visitor.visit_f64(array.value(self.index)),
            Column::I64(array) => visitor.visit_i64(array.value(self.index)),
            Column::U16(array) => visitor.visit_u16(array.value(self.index)),
            Column::U32(array) => visitor.visit_u32(array.value(self.index)),
            Column::U64(array) => visitor.visit_u64(array.value(self.index)),
            Column::List(array, items) => {
                let offsets = array.value_offsets();
                let (from, to) = (offsets[self.index] as usize, offsets[self.index + 1] as usize);
                let cells = (from..to).map(|index| Cell { column: items, index });
                visitor.visit_seq(SeqDeserializer::new(cells))
            }
            Column::Struct(array, columns) => visitor.visit_map(Cells {
                fields: array.fields(),
                columns,
                row: self.index,
                column: 0,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.column.is_null(self.index) {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.column {
            Column::Text(array) if !array.is_null(self.index) => {
                let text: StrDeserializer<'_, ValueError> =
                    array.value(self.index).into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            _ => Err(ValueError::custom(format!("{name} is not text"))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
