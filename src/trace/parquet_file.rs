//! The closed form of a table: one Parquet file, written in bounded memory and read as a stream.
//!
//! Files of older versions lack columns, which come as nulls; files rewritten by other programs are
//! read as long as their columns have the types of `schema.rs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ListArray, RecordBatch, RecordBatchReader, StructArray, new_null_array,
};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use super::files;
use super::record::Table;
use super::schema;
use crate::error::{Error, Result};

/// A row group is closed when its buffers hold this much.
pub(super) const ROW_GROUP_BYTES: usize = 8 << 20;
/// A batch read from a file holds about this many bytes …
const BATCH_BYTES: usize = 8 << 20;
/// … and at most this many rows.
const BATCH_ROWS: usize = 8192;

/// The Parquet file of a table in a run directory.
pub(super) fn parquet_path(dir: &Path, table: Table) -> PathBuf {
    dir.join(format!("{}.parquet", table.stem()))
}

/// Writes a table's batches to `path` and syncs it; returns the rows written. `source` is where the
/// batches come from, for the error when they cannot be read.
pub(super) fn write(
    path: &Path,
    table: Table,
    batches: impl RecordBatchReader,
    source: &Path,
) -> Result<u64> {
    let refused = |error: ParquetError| write_refused(path, error);
    let file = files::create_private(path).map_err(|error| files::write_error(path, &error))?;
    let properties = schema::writer_properties(table);
    let mut writer =
        ArrowWriter::try_new(file, batches.schema(), Some(properties)).map_err(refused)?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch.map_err(|error| unreadable(source, &error))?;
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(refused)?;
        if writer.memory_size() >= ROW_GROUP_BYTES {
            writer.flush().map_err(refused)?;
        }
    }
    let file = writer.into_inner().map_err(refused)?;
    file.sync_all().map_err(|error| files::write_error(path, &error))?;
    Ok(rows)
}

pub(super) fn write_refused(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => files::write_error(path, &source),
            Err(source) => Error::trace(path, format!("cannot write: {source}")),
        },
        other => Error::trace(path, format!("cannot write: {other}")),
    }
}

/// A file of a run whose content cannot be read.
pub(super) fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let text = error.to_string().replace('\n', " ");
    Error::trace(path, format!("cut off or damaged ({text}); copy the file again from its source"))
}

/// A table's Parquet file whose footer has been read.
#[derive(Debug, Clone)]
pub(super) struct ParquetFile {
    path: PathBuf,
    rows: u64,
}

impl ParquetFile {
    /// Reads the footer: a file that was cut off is found here.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let builder = open_builder(&path)?;
        let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        Ok(Self { path, rows })
    }

    /// Its place.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Rows in it.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows as record batches of `schema`.
    pub(super) fn batches(&self, schema: &SchemaRef) -> Result<ParquetBatches> {
        let builder = open_builder(&self.path)?;
        check_types(&self.path, builder.schema(), schema)?;
        let wanted: Vec<usize> = builder
            .parquet_schema()
            .root_schema()
            .get_fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| schema.field_with_name(field.name()).is_ok())
            .map(|(index, _)| index)
            .collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let batch_rows = rows_per_batch(builder.metadata(), &mask);
        let reader = builder
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|error| unreadable(&self.path, &error))?;
        Ok(ParquetBatches { reader, schema: Arc::clone(schema) })
    }
}

/// Types are taken from Parquet itself, so that files rewritten by other programs (large or view
/// strings in their embedded schema) read as ours.
fn open_builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = File::open(path).map_err(|error| files::read_error(path, &error))?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
        .map_err(|error| unreadable(path, &error))
}

fn rows_per_batch(metadata: &ParquetMetaData, mask: &ProjectionMask) -> usize {
    let widest = metadata
        .row_groups()
        .iter()
        .map(|group| {
            let bytes: i64 = group
                .columns()
                .iter()
                .enumerate()
                .filter(|(leaf, _)| mask.leaf_included(*leaf))
                .map(|(_, column)| column.uncompressed_size())
                .sum();
            bytes.max(0) as usize / group.num_rows().max(1) as usize
        })
        .max()
        .unwrap_or(0);
    (BATCH_BYTES / widest.max(1)).clamp(16, BATCH_ROWS)
}

fn check_types(path: &Path, found: &Schema, wanted: &Schema) -> Result<()> {
    for field in wanted.fields() {
        if let Ok(other) = found.field_with_name(field.name())
            && !same_type(other.data_type(), field.data_type())
        {
            return Err(Error::trace(
                path,
                format!(
                    "column {} has type {}, not {}; the file was not written by agentbench",
                    field.name(),
                    other.data_type(),
                    field.data_type()
                ),
            ));
        }
    }
    Ok(())
}

/// Equal but for the names of lists' items and for what may be null.
fn same_type(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::List(left), DataType::List(right)) => {
            same_type(left.data_type(), right.data_type())
        }
        (DataType::Struct(left), DataType::Struct(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| {
                    left.name() == right.name() && same_type(left.data_type(), right.data_type())
                })
        }
        _ => left == right,
    }
}

/// The rows of a Parquet file as record batches of a given schema.
pub(super) struct ParquetBatches {
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
}

impl ParquetBatches {
    fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) => fit_column(column, field.data_type()),
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            })
            .collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// A column of the same type with the wanted names of lists' items.
fn fit_column(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let any = column.as_any();
    match (wanted, any.downcast_ref::<ListArray>(), any.downcast_ref::<StructArray>()) {
        (DataType::List(item), Some(list), _) => {
            let (_, offsets, values, nulls) = list.clone().into_parts();
            let values = fit_column(&values, item.data_type())?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
        }
        (DataType::Struct(fields), _, Some(array)) => {
            let (_, columns, nulls) = array.clone().into_parts();
            let columns = columns
                .iter()
                .zip(fields)
                .map(|(column, field)| fit_column(column, field.data_type()))
                .collect::<Result<_, _>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?))
        }
        _ => Ok(Arc::clone(column)),
    }
}

impl Iterator for ParquetBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        Some(batch.and_then(|batch| self.fit(&batch)))
    }
}

impl RecordBatchReader for ParquetBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
