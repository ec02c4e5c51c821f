table! {
    #[derive(Eq, Hash)]
    Stack in stacks: "A call chain, shared by the samples and traps that name it.";

    id: StackId = "Its id, unique in the recording.",
    frames: Vec<Address> = "User-space addresses, innermost first: the interrupted instruction, then the return address of each caller.",
}
