// Runs the model's first entry point on zeros, in Rust:
//
//   BUNDLE=/path/to/the/bundle
//   rustc $BUNDLE/examples/main.rs -C link-arg=$BUNDLE/model.so -C link-arg=-Wl,-rpath,$BUNDLE -o main && ./main
//
// Build outside the bundle: `bessemer verify-bundle` rejects files that the bundle does not list.
use std::ffi::{c_char, c_void, CStr};

#[repr(C)]
struct Tensor {
    name: *const c_char,
    dtype: *const c_char,
    shape: *const i64,
    dimensions: i32,
    bytes: usize,
}

#[repr(C)]
struct Entry {
    name: *const c_char,
    inputs: *const Tensor,
    input_count: i32,
    outputs: *const Tensor,
    output_count: i32,
}

extern "C" {
    fn bessemer_model_entries(count: *mut i32) -> *const Entry;
    fn bessemer_model_open(threads: i32) -> *mut c_void;
    fn bessemer_model_run(model: *mut c_void, entry: i32, inputs: *const *const c_void, outputs: *const *mut c_void) -> i32;
    fn bessemer_model_close(model: *mut c_void);
    fn bessemer_model_error() -> *const c_char;
}

/// A session: state, memory and threads of its own.
struct Model(*mut c_void);

impl Model {
    fn open(threads: i32) -> Result<Model, String> {
        let model = unsafe { bessemer_model_open(threads) };
        if model.is_null() { Err(last_error()) } else { Ok(Model(model)) }
    }

    /// Runs the first entry point: one buffer for each input, in order; returns one for each output.
    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let mut outputs: Vec<Vec<u8>> = tensors(false).iter().map(|one| vec![0; one.bytes]).collect();
        let given: Vec<*const c_void> = inputs.iter().map(|one| one.as_ptr().cast()).collect();
        let made: Vec<*mut c_void> = outputs.iter_mut().map(|one| one.as_mut_ptr().cast()).collect();
        match unsafe { bessemer_model_run(self.0, 0, given.as_ptr(), made.as_ptr()) } {
            0 => Ok(outputs),
            _ => Err(last_error()),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { bessemer_model_close(self.0) }
    }
}

fn last_error() -> String {
    unsafe { text(bessemer_model_error()) }
}

unsafe fn text(chars: *const c_char) -> String {
    CStr::from_ptr(chars).to_string_lossy().into_owned()
}

/// The inputs or the outputs of the first entry point.
fn tensors(inputs: bool) -> &'static [Tensor] {
    unsafe {
        let entry = &*bessemer_model_entries(std::ptr::null_mut());
        let (first, count) = if inputs { (entry.inputs, entry.input_count) } else { (entry.outputs, entry.output_count) };
        if count == 0 { &[] } else { std::slice::from_raw_parts(first, count as usize) }
    }
}

fn main() -> Result<(), String> {
    let inputs: Vec<Vec<u8>> = tensors(true).iter().map(|one| vec![0; one.bytes]).collect();
    let outputs = Model::open(0)?.run(&inputs)?;
    for (tensor, output) in tensors(false).iter().zip(&outputs) {
        println!("{}: {}, {} bytes", unsafe { text(tensor.name) }, unsafe { text(tensor.dtype) }, output.len());
    }
    Ok(())
}
