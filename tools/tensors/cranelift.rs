//! Kernels by cranelift-jit.

use cranelift::codegen::ir::BlockArg;
use cranelift::prelude::*;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{DataDescription, FuncId, Linkage, Module};

use crate::expressions::{Expression, Kernel, Operation, Tensor};
use crate::sides::Network;

/// All kernels in one module, as [`ir::module`](crate::ir::module) has them.
///
/// # Errors
/// In cranelift's words.
pub fn compile(kernels: &[Kernel]) -> Result<(JITModule, Network), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let builder = JITBuilder::with_flags(&[("opt_level", "speed")], cranelift_module::default_libcall_names());
    let mut module = JITModule::new(builder.map_err(|error| text(&error))?);
    let pointer = module.target_config().pointer_type();
    let mut context = module.make_context();
    let mut functions = FunctionBuilderContext::new();
    let mut ids = Vec::new();
    for (number, kernel) in kernels.iter().enumerate() {
        context.func.signature.params = vec![AbiParam::new(pointer); 4];
        let name = format!("kernel_{number}");
        let id = module.declare_function(&name, Linkage::Local, &context.func.signature);
        let id = id.map_err(|error| text(&error))?;
        build(kernel, FunctionBuilder::new(&mut context.func, &mut functions), module.target_config());
        module.define_function(id, &mut context).map_err(|error| text(&error))?;
        module.clear_context(&mut context);
        ids.push(id);
    }
    let network = network(&mut module, &ids).map_err(|error| text(&error))?;
    module.finalize_definitions().map_err(|error| text(&error))?;
    let address = module.get_finalized_function(network);
    // SAFETY: the function has this type; the module is returned with it.
    let network = unsafe { std::mem::transmute::<*const u8, Network>(address) };
    Ok((module, network))
}

fn build(kernel: &Kernel, mut builder: FunctionBuilder<'_>, target: isa::TargetFrontendConfig) {
    let [entry, step, end] = [(); 3].map(|()| builder.create_block());
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [out, a, b, n] = builder.block_params(entry)[..] else { unreachable!("the signature has four") };
    let i = builder.append_block_param(step, types::I64);
    let sum = kernel.is_sum.then(|| builder.append_block_param(step, types::F32));
    let zero = builder.ins().iconst(types::I64, 0);
    let nothing = sum.map(|_| builder.ins().f32const(0.0));
    builder.ins().jump(step, &arguments(zero, nothing));
    builder.switch_to_block(step);
    let offset = builder.ins().ishl_imm_u(i, 2);
    let flags = MemFlagsData::trusted();
    let [x, y] = [a, b].map(|tensor| {
        let at = builder.ins().iadd(tensor, offset);
        builder.ins().load(types::F32, flags, at, 0)
    });
    let element = value(&mut builder, &kernel.element, x, y);
    let summed = sum.map(|sum| builder.ins().fadd(sum, element));
    if summed.is_none() {
        let at = builder.ins().iadd(out, offset);
        builder.ins().store(flags, element, at, 0);
    }
    let next = builder.ins().iadd_imm_u(i, 1);
    let more = builder.ins().icmp(IntCC::SignedLessThan, next, n);
    builder.ins().brif(more, step, &arguments(next, summed), end, &[]);
    builder.switch_to_block(end);
    if let Some(summed) = summed {
        builder.ins().store(flags, summed, out, 0);
    }
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(target);
}

/// Those of the loop's block.
fn arguments(i: Value, sum: Option<Value>) -> Vec<BlockArg> {
    [Some(i), sum].into_iter().flatten().map(BlockArg::from).collect()
}

fn value(builder: &mut FunctionBuilder<'_>, expression: &Expression, x: Value, y: Value) -> Value {
    match expression {
        Expression::Element(Tensor::A) => x,
        Expression::Element(Tensor::B) => y,
        Expression::Constant(value) => builder.ins().f32const(*value),
        Expression::Binary(operation, sides) => {
            let left = value(builder, &sides.0, x, y);
            let right = value(builder, &sides.1, x, y);
            match operation {
                Operation::Add => builder.ins().fadd(left, right),
                Operation::Subtract => builder.ins().fsub(left, right),
                Operation::Multiply => builder.ins().fmul(left, right),
                Operation::Maximum => {
                    let greater = builder.ins().fcmp(FloatCC::GreaterThan, left, right);
                    builder.ins().select(greater, left, right)
                }
            }
        }
    }
}

/// The function that calls kernels by their numbers, through a table.
fn network(module: &mut JITModule, kernels: &[FuncId]) -> cranelift_module::ModuleResult<FuncId> {
    let pointer = module.target_config().pointer_type();
    let table = module.declare_data("table", Linkage::Local, false, false)?;
    let mut contents = DataDescription::new();
    contents.define_zeroinit(kernels.len() * 8);
    for (number, kernel) in kernels.iter().enumerate() {
        let function = module.declare_func_in_data(*kernel, &mut contents);
        contents.write_function_addr(number as u32 * 8, function);
    }
    module.define_data(table, &contents)?;

    let mut context = module.make_context();
    context.func.signature.params = vec![AbiParam::new(pointer); 6];
    let id = module.declare_function("network", Linkage::Export, &context.func.signature)?;
    let table = module.declare_data_in_func(table, &mut context.func);
    let mut functions = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut functions);
    let mut kernel_type = module.make_signature();
    kernel_type.params = vec![AbiParam::new(pointer); 4];
    let kernel_type = builder.import_signature(kernel_type);
    let [entry, step, end] = [(); 3].map(|()| builder.create_block());
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [numbers, count, out, a, b, n] = builder.block_params(entry)[..] else { unreachable!("the signature has six") };
    let i = builder.append_block_param(step, types::I64);
    let zero = builder.ins().iconst(types::I64, 0);
    builder.ins().jump(step, &[zero.into()]);
    builder.switch_to_block(step);
    let flags = MemFlagsData::trusted();
    let offset = builder.ins().ishl_imm_u(i, 2);
    let at = builder.ins().iadd(numbers, offset);
    let number = builder.ins().uload32(flags, at, 0);
    let offset = builder.ins().ishl_imm_u(number, 3);
    let table = builder.ins().symbol_value(pointer, table);
    let at = builder.ins().iadd(table, offset);
    let kernel = builder.ins().load(pointer, flags, at, 0);
    let elements = builder.ins().imul(i, n);
    let offset = builder.ins().ishl_imm_u(elements, 2);
    let out = builder.ins().iadd(out, offset);
    builder.ins().call_indirect(kernel_type, kernel, &[out, a, b, n]);
    let next = builder.ins().iadd_imm_u(i, 1);
    let more = builder.ins().icmp(IntCC::SignedLessThan, next, count);
    builder.ins().brif(more, step, &[next.into()], end, &[]);
    builder.switch_to_block(end);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(module.target_config());
    module.define_function(id, &mut context)?;
    Ok(id)
}
