/** Which of the reader's own messages is being edited. */
class Editing {
  id = $state<string | null>(null);
}

export const editing = new Editing();
