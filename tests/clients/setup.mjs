// The client, on the server that the environment names. No retries: what fails once must be seen.
import OpenAI from "openai";

const { BASE_URL, API_KEY } = process.env;
export const { MODEL, EMBEDDINGS } = process.env;
export const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
export const stranger = new OpenAI({ baseURL: BASE_URL, apiKey: "sk-wrong", maxRetries: 0 });
