//! Lines of a Prometheus page, with the labels that vLLM gives its series.

use std::fmt::Write as _;

use super::Histogram;

/// A page under construction.
pub(super) struct Page {
    text: String,
    // The model's name, escaped for a label.
    model: String,
}

// Writing to a String cannot fail, so its results are dropped.
impl Page {
    pub(super) fn new(model: &str) -> Self {
        Self { text: String::with_capacity(48 * 1024), model: escape(model) }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn cache_config(&mut self, kv_blocks: u32) {
        self.head("cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
        let _ = writeln!(
            self.text,
            "vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"auto\",\
             enable_prefix_caching=\"True\",engine=\"0\",num_cpu_blocks=\"None\",\
             num_gpu_blocks=\"{kv_blocks}\",prefix_caching_hash_algo=\"builtin\"}} 1.0"
        );
    }

    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.value(name, value);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("{name}_total");
        self.head(&name, help, "counter");
        self.value(&name, value as f64);
    }

    fn value(&mut self, name: &str, value: f64) {
        let _ = writeln!(
            self.text,
            "vllm:{name}{{engine=\"0\",model_name=\"{}\"}} {value:?}",
            self.model
        );
    }

    pub(super) fn labelled(&mut self, name: &str, label: &str, text: &str, value: u64) {
        let _ = writeln!(
            self.text,
            "vllm:{name}{{engine=\"0\",model_name=\"{}\",{label}=\"{text}\"}} {:?}",
            self.model, value as f64
        );
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            self.bucket(name, &format!("{bound:?}"), below);
        }
        self.bucket(name, "+Inf", histogram.count);
        self.value(&format!("{name}_count"), histogram.count as f64);
        self.value(&format!("{name}_sum"), histogram.sum);
    }

    fn bucket(&mut self, name: &str, bound: &str, count: u64) {
        let _ = writeln!(
            self.text,
            "vllm:{name}_bucket{{engine=\"0\",le=\"{bound}\",model_name=\"{}\"}} {:?}",
            self.model, count as f64
        );
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
