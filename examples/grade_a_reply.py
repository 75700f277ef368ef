"""Grade one reply: python examples/grade_a_reply.py. Rules alone decide this task, so no model is called."""

import gavel

INSTRUCTION = {"uid": 1, "instruction_id": "change_case:all_caps", "source": "user", "is_misalignment_check": False}
task = {"prompt": "Say hello in capital letters.", "instructions": [INSTRUCTION]}
result = gavel.grade(task, "HELLO!", "env=instruction_following")
print(result.status, result.outcome.label, result.reward.value if result.reward else result.outcome.failure)
