#include "planning/plan_json.h"

#include "ops/gemm_rs/plan.h"
#include "reduction/reduction_plan_text.h"

namespace tilewire::gemm_rs {

std::string to_json(const PlanChoice& choice) { return choice_to_json(kCallName, choice); }
PlanChoice PlanChoice::from_json(const std::string& json) { return choice_from_json<PlanChoice>(kCallName, json); }

std::string PlanChoice::shared_text() const { return chunks_text(*this); }
CallParts PlanChoice::agreed() const { return agreed_chunks(*this); }
std::string PlanChoice::text() const { return own_text(*this, "multiply, then reduce", shared_text()); }

}  // namespace tilewire::gemm_rs
