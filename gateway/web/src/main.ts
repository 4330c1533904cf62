import { mount } from "svelte";
import App from "./App.svelte";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/prose.css";
import "./styles/syntax.css";

const target = document.getElementById("app");
if (!target) throw new Error("index.html has no #app");
mount(App, { target });
