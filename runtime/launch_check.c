/* launch_check.c: the checks of the CPU's driver, compiled for calls whose memory is a GPU's.
 *
 * They look at shapes, strides and addresses, never at elements, so they hold for any
 * device; which device the tensors are on is asked by the launcher. One source, two
 * names: kernels carry their own copy, and both may be linked into one program.
 */
#define PEGEN_CHECK_ANY_DEVICE
#define pegen_check pegen_launch_check_call
#define pegen_check_rows_shape pegen_launch_check_rows_shape
#define pegen_check_coordinates pegen_launch_check_coordinates
#define pegen_row_type pegen_launch_row_type
#define pegen_position_type_of pegen_launch_position_type_of
#define pegen_same_type pegen_launch_same_type
#define pegen_check_operand_types pegen_launch_check_operand_types
#define pegen_on_host pegen_launch_on_host
#define pegen_view_rows pegen_launch_view_rows
#define pegen_meets_operand pegen_launch_meets_operand
#define pegen_one_of pegen_launch_one_of
#define pegen_check_args pegen_launch_check_args
#define pegen_check_operands_given pegen_launch_check_operands_given
#define pegen_check_operand_shapes pegen_launch_check_operand_shapes
#define pegen_check_operand_memory pegen_launch_check_operand_memory
#define pegen_check_inputs_given pegen_launch_check_inputs_given
#define pegen_check_input_shapes pegen_launch_check_input_shapes
#define pegen_check_input_types pegen_launch_check_input_types
#define pegen_view_inputs pegen_launch_view_inputs
#define pegen_view_of pegen_launch_view_of
#define pegen_view_contiguous pegen_launch_view_contiguous
#define pegen_views_equal pegen_launch_views_equal
#define pegen_views_meet pegen_launch_views_meet
#define pegen_view_nests pegen_launch_view_nests
#define pegen_check_prepare pegen_launch_check_prepare
#define pegen_table_section pegen_launch_table_section
#define pegen_table_check pegen_launch_table_check
#define pegen_table_sections pegen_launch_table_sections
#define pegen_table_view pegen_launch_table_view
#define pegen_table_extent pegen_launch_table_extent
#define pegen_table_size pegen_launch_table_size

#include "../kernel/check.c"
#include "../kernel/view.c"
#include "../kernel/table.c"
