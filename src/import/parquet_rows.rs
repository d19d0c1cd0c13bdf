//! Rows of a Parquet file as the JSON lines that the same format has elsewhere: its columns are the members.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_json::LineDelimitedWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use crate::error::{Error, Result};

/// Rows that are read as one.
const BATCH_ROWS: usize = 256;

/// Reads a file row by row.
pub(super) struct ParquetRows {
    reader: ParquetRecordBatchReader,
    lines: std::vec::IntoIter<String>,
}

impl ParquetRows {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let damaged = |error: &dyn std::fmt::Display| {
            let text = error.to_string().replace('\n', " ");
            Error::trace(path, format!("cut off or damaged ({text}); copy the file again"))
        };
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
            .map_err(|error| damaged(&error))?;
        Ok(Self { reader, lines: Vec::new().into_iter() })
    }

    /// The next row; an error ends the file.
    pub(super) fn next(&mut self) -> Option<std::result::Result<String, String>> {
        loop {
            if let Some(line) = self.lines.next() {
                return Some(Ok(line));
            }
            let batch = self.reader.next()?;
            match batch.map_err(|error| error.to_string()).and_then(|batch| lines(&batch)) {
                Ok(lines) => self.lines = lines.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Nulls are left out, as a line of JSON leaves them out.
fn lines(batch: &RecordBatch) -> std::result::Result<Vec<String>, String> {
    let mut text = Vec::new();
    let mut writer = LineDelimitedWriter::new(&mut text);
    writer.write(batch).and_then(|()| writer.finish()).map_err(|error| error.to_string())?;
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The first row; none in an empty file.
pub(super) fn first_record(path: &Path) -> Result<Option<String>> {
    let first = ParquetRows::open(path)?.next().transpose();
    first.map_err(|what| Error::trace(path, format!("cannot be read: {}", what.replace('\n', " "))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, ListArray, StringArray, StructArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{DataType, Field, Fields, Schema};
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[test]
    fn rows_come_as_lines_with_their_lists_and_without_their_nulls() {
        let fields = Fields::from(vec![Field::new("role", DataType::Utf8, true)]);
        let roles = Arc::new(StringArray::from(vec!["user", "assistant", "user"]));
        let messages = StructArray::new(fields.clone(), vec![roles], None);
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        let list = ListArray::new(
            Arc::clone(&item),
            OffsetBuffer::from_lengths([2, 1]),
            Arc::new(messages),
            None,
        );
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("t", DataType::Float64, true),
            Field::new("messages", DataType::List(item), true),
        ]));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from(vec![Some(7), None])),
                Arc::new(Float64Array::from(vec![None, Some(1.5)])),
                Arc::new(list),
            ],
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();

        let mut rows = ParquetRows::open(&path).unwrap();
        let read: Vec<String> = std::iter::from_fn(|| rows.next()).map(Result::unwrap).collect();
        assert_eq!(
            read,
            [
                r#"{"id":7,"messages":[{"role":"user"},{"role":"assistant"}]}"#,
                r#"{"t":1.5,"messages":[{"role":"user"}]}"#,
            ]
        );
        std::fs::write(&path, b"PAR1 and no more").unwrap();
        assert!(ParquetRows::open(&path).is_err());
    }
}
